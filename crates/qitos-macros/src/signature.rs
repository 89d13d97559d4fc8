//! Rule: which functions can be tools (MAC-2, MAC-3, MAC-6). Macros see tokens, not types: contexts, results
//! and futures are recognised by spelling.

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::spanned::Spanned;
use syn::{
    Attribute, Expr, FnArg, GenericArgument, Ident, LitStr, Meta, Pat, PathArguments, ReceiverKind,
    ReturnType, Safety, Signature, Type,
};

use crate::attributes::ArgAttributes;
use crate::documentation;

/// Compile errors of one item; all of them are shown at once.
#[derive(Debug, Default)]
pub(crate) struct Errors(pub(crate) Vec<syn::Error>);

impl Errors {
    pub(crate) fn push(&mut self, span: Span, message: impl std::fmt::Display) {
        self.0.push(syn::Error::new(span, message));
    }

    pub(crate) fn at(&mut self, tokens: impl ToTokens, message: impl std::fmt::Display) {
        self.0.push(syn::Error::new_spanned(tokens, message));
    }

    /// The errors as `compile_error!` calls; empty if there are none.
    pub(crate) fn into_tokens(self) -> TokenStream {
        self.0
            .into_iter()
            .map(|error| error.to_compile_error())
            .collect()
    }
}

/// Where the function stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Free,
    Method,
}

/// A parameter, in order.
pub(crate) enum Parameter {
    /// A `CallCtx`, by value or by reference.
    Context { by_reference: bool },
    /// One argument of the model.
    Argument(Box<Argument>),
    /// The struct marked `#[args]`.
    Struct(Box<Type>),
}

/// An argument of the model.
pub(crate) struct Argument {
    pub(crate) name: Ident,
    pub(crate) ty: Type,
    pub(crate) default: Option<Expr>,
    pub(crate) description: Option<String>,
}

/// How the output becomes a result, by the spelling of the return type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    Value,
    ToolResult,
    FallibleValue,
    FallibleToolResult,
}

/// A function that can be a tool.
pub(crate) struct Function {
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) names: Vec<Ident>,
    pub(crate) output: Output,
    pub(crate) is_async: bool,
}

impl Function {
    /// The arguments of the model that stand as single parameters.
    pub(crate) fn arguments(&self) -> impl Iterator<Item = &Argument> {
        self.parameters
            .iter()
            .filter_map(|parameter| match parameter {
                Parameter::Argument(argument) => Some(&**argument),
                Parameter::Context { .. } | Parameter::Struct(_) => None,
            })
    }

    /// The struct marked `#[args]`.
    pub(crate) fn args_struct(&self) -> Option<&Type> {
        self.parameters
            .iter()
            .find_map(|parameter| match parameter {
                Parameter::Struct(ty) => Some(&**ty),
                Parameter::Context { .. } | Parameter::Argument(_) => None,
            })
    }
}

/// Checks a signature and takes the macro's own attributes off its parameters.
pub(crate) fn read(signature: &mut Signature, place: Place, errors: &mut Errors) -> Function {
    check_qualifiers(signature, errors);
    let mut function = Function {
        parameters: Vec::new(),
        names: Vec::new(),
        output: read_output(&signature.output, errors),
        is_async: signature.asyncness.is_some(),
    };
    let mut has_receiver = false;
    for input in &mut signature.inputs {
        match input {
            FnArg::Receiver(receiver) => {
                has_receiver = true;
                if place == Place::Free {
                    errors.at(
                        &*receiver,
                        "a method becomes a tool only inside a `#[toolset]` impl",
                    );
                } else if !matches!(receiver.kind, ReceiverKind::Reference(_, None, None)) {
                    errors.at(&*receiver, "a method of a toolset takes `&self`");
                }
            }
            FnArg::Typed(typed) => {
                let own = take_own_attributes(&mut typed.attrs, errors);
                let Pat::Ident(pattern) = &*typed.pat else {
                    errors.at(&typed.pat, "a parameter of a tool is a plain name");
                    continue;
                };
                if pattern.by_ref.is_some() || pattern.subpat.is_some() {
                    errors.at(&typed.pat, "a parameter of a tool is a plain name");
                    continue;
                }
                function.names.push(pattern.ident.clone());
                if let Some(parameter) =
                    read_parameter(&pattern.ident, &typed.ty, own, place, errors)
                {
                    function.parameters.push(parameter);
                }
            }
        }
    }
    if place == Place::Method && !has_receiver {
        errors.at(&signature.ident, "a method of a toolset takes `&self`");
    }
    check_together(signature, &function, errors);
    function
}

fn check_qualifiers(signature: &Signature, errors: &mut Errors) {
    if let Safety::Unsafe(token) = &signature.safety {
        errors.at(token, "a tool is not `unsafe`");
    }
    if let Some(abi) = &signature.abi {
        errors.at(abi, "a tool is not `extern`");
    }
    if let Some(variadic) = &signature.variadic {
        errors.at(variadic, "a tool is not variadic");
    }
    if !signature.generics.params.is_empty() {
        errors.at(
            &signature.generics,
            "a tool is not generic: its schema must be known",
        );
    } else if let Some(clause) = &signature.generics.where_clause {
        errors.at(clause, "a tool is not generic: its schema must be known");
    }
}

fn check_together(signature: &Signature, function: &Function, errors: &mut Errors) {
    let contexts = function
        .parameters
        .iter()
        .filter(|one| matches!(one, Parameter::Context { .. }))
        .count();
    if contexts > 1 {
        errors.at(&signature.inputs, "a tool takes at most one `CallCtx`");
    }
    let structs = function
        .parameters
        .iter()
        .filter(|one| matches!(one, Parameter::Struct(_)))
        .count();
    if structs > 1 || (structs == 1 && function.arguments().next().is_some()) {
        errors.at(
            &signature.inputs,
            "`#[args]` marks the only parameter besides a `CallCtx`",
        );
    }
}

/// What the macro's attributes on a parameter said.
#[derive(Default)]
struct OwnAttributes {
    arg: ArgAttributes,
    arg_at: Option<Span>,
    is_args: bool,
    doc: Option<String>,
}

fn take_own_attributes(attributes: &mut Vec<Attribute>, errors: &mut Errors) -> OwnAttributes {
    let mut own = OwnAttributes {
        doc: documentation::paragraph(attributes),
        ..OwnAttributes::default()
    };
    attributes.retain(|attribute| {
        let path = attribute.path();
        if path.is_ident("arg") {
            if own.arg_at.is_some() {
                errors.at(attribute, "`#[arg]` is given twice");
            }
            own.arg_at = Some(attribute.span());
            match &attribute.meta {
                Meta::List(list) => own.arg = ArgAttributes::read(list.tokens.clone(), errors),
                _ => errors.at(attribute, "`#[arg]` needs a list: `#[arg(default = …)]`"),
            }
        } else if path.is_ident("args") {
            own.is_args = true;
            if !matches!(attribute.meta, Meta::Path(_)) {
                errors.at(attribute, "`#[args]` takes nothing");
            }
        }
        !["arg", "args", "doc"]
            .iter()
            .any(|name| path.is_ident(name))
    });
    own
}

fn read_parameter(
    name: &Ident,
    ty: &Type,
    own: OwnAttributes,
    place: Place,
    errors: &mut Errors,
) -> Option<Parameter> {
    let referred = match ty {
        Type::Reference(reference) if reference.mutability.is_none() => &*reference.elem,
        other => other,
    };
    if last_segment(referred).is_some_and(|segment| segment == "CallCtx") {
        if let Some(span) = own.arg_at {
            errors.push(span, "a `CallCtx` is no argument of the model");
        }
        return Some(Parameter::Context {
            by_reference: matches!(ty, Type::Reference(_)),
        });
    }
    if let Some(message) = unowned(ty.to_token_stream()) {
        errors.at(ty, message);
        return None;
    }
    if place == Place::Method && mentions_self(ty.to_token_stream()) {
        errors.at(ty, "the type of an argument is written out, not `Self`");
        return None;
    }
    if own.is_args {
        if let Some(span) = own.arg_at {
            errors.push(
                span,
                "the fields of an `#[args]` struct have their own defaults and descriptions",
            );
        }
        return Some(Parameter::Struct(Box::new(ty.clone())));
    }
    Some(Parameter::Argument(Box::new(Argument {
        name: name.clone(),
        ty: ty.clone(),
        default: own.arg.default,
        description: own.arg.description.as_ref().map(LitStr::value).or(own.doc),
    })))
}

/// Why a parameter's type is not owned, if it is not.
fn unowned(tokens: TokenStream) -> Option<&'static str> {
    for token in tokens {
        match token {
            TokenTree::Punct(punct) if matches!(punct.as_char(), '&' | '\'') => {
                return Some(
                    "a parameter of a tool is owned: it is read out of the model's arguments",
                );
            }
            TokenTree::Ident(ident) if ident == "impl" || ident == "dyn" => {
                return Some("a parameter of a tool has a concrete type");
            }
            TokenTree::Group(group) => {
                if let Some(message) = unowned(group.stream()) {
                    return Some(message);
                }
            }
            _ => {}
        }
    }
    None
}

fn mentions_self(tokens: TokenStream) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(ident) => ident == "Self",
        TokenTree::Group(group) => mentions_self(group.stream()),
        _ => false,
    })
}

/// The last segment of a path type.
pub(crate) fn last_segment(ty: &Type) -> Option<&Ident> {
    match ty {
        Type::Path(path) => path.path.segments.last().map(|segment| &segment.ident),
        Type::Group(group) => last_segment(&group.elem),
        Type::Paren(paren) => last_segment(&paren.elem),
        _ => None,
    }
}

fn read_output(output: &ReturnType, errors: &mut Errors) -> Output {
    let ReturnType::Type(_, ty) = output else {
        return Output::Value;
    };
    if returns_later(ty.to_token_stream()) {
        errors.at(
            ty,
            "a tool returns its output, not a future or stream; write `async fn`",
        );
        return Output::Value;
    }
    let Type::Path(path) = &**ty else {
        return Output::Value;
    };
    let Some(segment) = path.path.segments.last() else {
        return Output::Value;
    };
    if segment.ident == "ToolResult" {
        return Output::ToolResult;
    }
    if segment.ident != "Result" {
        return Output::Value;
    }
    let success = match &segment.arguments {
        PathArguments::AngleBracketed(arguments) => {
            arguments.args.iter().find_map(|argument| match argument {
                GenericArgument::Type(ty) => last_segment(ty),
                _ => None,
            })
        }
        _ => None,
    };
    if success.is_some_and(|ident| ident == "ToolResult") {
        Output::FallibleToolResult
    } else {
        Output::FallibleValue
    }
}

/// Whether a type is spelled like a future or a stream.
fn returns_later(tokens: TokenStream) -> bool {
    const NAMES: [&str; 6] = [
        "Future",
        "BoxFuture",
        "LocalBoxFuture",
        "Stream",
        "BoxStream",
        "LocalBoxStream",
    ];
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(ident) => NAMES.iter().any(|name| ident == name),
        TokenTree::Group(group) => returns_later(group.stream()),
        _ => false,
    })
}
