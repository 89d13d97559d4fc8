//! What a tool function becomes: an argument struct with its schema, and an implementation of `Tool`.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::{Attribute, ItemFn, LitStr, Path, Signature, Type, parse_quote};

use crate::attributes::{Approval, BAD_NAME, Effect, ToolAttributes, is_tool_name};
use crate::documentation::{self, Documentation};
use crate::pascal_case::pascal_case;
use crate::signature::{self, Argument, Errors, Function, Output, Parameter, Place};
use crate::template::Part;

/// Expands `#[tool]` on a free function.
pub(crate) fn tool(attributes: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let attributes = ToolAttributes::read(attributes, &mut errors);
    let mut item: ItemFn = match syn::parse2(item) {
        Ok(item) => item,
        Err(error) => {
            errors.push(error.span(), "`#[tool]` stands on a function");
            return errors.into_tokens();
        }
    };
    let mut signature_errors = Errors::default();
    let function = signature::read(&mut item.sig, Place::Free, &mut signature_errors);
    let signature_is_fine = signature_errors.0.is_empty();
    errors.0.extend(signature_errors.0);
    let krate = attributes
        .crate_path
        .clone()
        .unwrap_or_else(|| parse_quote!(::qitos));
    let plan = Plan::new(&attributes, &item.attrs, &item.sig, function, &mut errors);
    if !errors.0.is_empty() {
        let errors = errors.into_tokens();
        // The function stays, so that its callers add no errors of their own.
        return if signature_is_fine {
            quote!(#errors #item)
        } else {
            errors
        };
    }
    let tool = pascal_case(&item.sig.ident);
    let name = &item.sig.ident;
    let visibility = &item.vis;
    let documentation = format!("The tool made of [`{}`]({}()).", name.unraw(), name.unraw());
    let implementation = plan.expand(&krate, &tool, &quote!(#name), None);
    quote! {
        #item

        #[doc = #documentation]
        #[derive(Clone, Copy, Debug, Default)]
        #visibility struct #tool;

        const _: () = { #implementation };
    }
}

/// Everything about one tool that does not depend on where its function stands.
pub(crate) struct Plan<'item> {
    attributes: &'item ToolAttributes,
    documentation: Documentation,
    function: Function,
    name: String,
    description: String,
    output_span: Span,
}

impl<'item> Plan<'item> {
    /// Checks what attributes, documentation and signature say together.
    pub(crate) fn new(
        attributes: &'item ToolAttributes,
        doc: &[Attribute],
        signature: &Signature,
        function: Function,
        errors: &mut Errors,
    ) -> Self {
        let documentation = documentation::read(doc);
        documentation::check_names(&documentation, &function.names, errors);
        let name = match &attributes.name {
            Some(name) => name.value(),
            None => signature.ident.unraw().to_string(),
        };
        if attributes.name.is_none() && !is_tool_name(&name) {
            errors.push(signature.ident.span(), BAD_NAME);
        }
        // TOL-3: an explicit description is never replaced by the doc comment.
        let description = match &attributes.description {
            Some(description) => description.value(),
            None => documentation.description.clone(),
        };
        if description.trim().is_empty() {
            errors.push(
                signature.ident.span(),
                "a tool needs a description: write a doc comment or `description = \"…\"`",
            );
        }
        if let Some(Effect::Declared(parts, span)) = &attributes.effect {
            check_placeholders(parts, *span, &function, errors);
        }
        if let Some((parts, span)) = &attributes.idempotency {
            check_placeholders(parts, *span, &function, errors);
        }
        let output_span = match &signature.output {
            syn::ReturnType::Type(_, ty) => syn::spanned::Spanned::span(&**ty),
            syn::ReturnType::Default => signature.ident.span(),
        };
        Plan {
            attributes,
            documentation,
            function,
            name,
            description,
            output_span,
        }
    }

    /// The argument struct and `impl Tool for tool`. `callee` is the function; of a method, `host` is its type
    /// and `tool` holds an `Arc` of it.
    pub(crate) fn expand(
        &self,
        krate: &Path,
        tool: &Ident,
        callee: &TokenStream,
        host: Option<&Type>,
    ) -> TokenStream {
        let arguments = format_ident!("__{}Arguments", tool);
        let argument_struct = self.argument_struct(krate, &arguments);
        let spec = self.spec(krate, &arguments);
        let effect = self.effect(krate);
        let approval = match &self.attributes.needs_approval {
            None | Some(Approval::Never) => quote!(::core::result::Result::Ok(false)),
            Some(Approval::Always) => quote!(::core::result::Result::Ok(true)),
            Some(Approval::Predicate(predicate)) => quote!(#predicate(__args, __facts)),
        };
        let execute = self.execute(krate, callee, host);
        quote! {
            #argument_struct

            #[#krate::__private::async_trait::async_trait]
            impl #krate::tool::Tool for #tool {
                fn spec(&self) -> &#krate::tool::ToolSpec {
                    static SPEC: ::std::sync::LazyLock<#krate::tool::ToolSpec> =
                        ::std::sync::LazyLock::new(|| { #spec });
                    &SPEC
                }

                fn validate(
                    &self,
                    __args: &#krate::__private::serde_json::Value,
                ) -> ::core::result::Result<(), #krate::tool::ToolError> {
                    #krate::tool::function::read_arguments::<#arguments>(__args).map(|_| ())
                }

                fn effect(
                    &self,
                    __args: &#krate::__private::serde_json::Value,
                    __slot: &#krate::tool::function::SlotId,
                ) -> ::core::result::Result<#krate::tool::EffectClass, #krate::tool::ToolError> {
                    #effect
                }

                fn needs_approval(
                    &self,
                    __args: &#krate::__private::serde_json::Value,
                    __facts: &#krate::tool::Facts,
                ) -> ::core::result::Result<bool, #krate::tool::ToolError> {
                    #approval
                }

                async fn execute(
                    &self,
                    __args: ::std::sync::Arc<#krate::__private::serde_json::Value>,
                    __context: #krate::tool::CallCtx,
                ) -> ::core::result::Result<#krate::tool::Returned, #krate::tool::ToolError> {
                    let __arguments: #arguments = #krate::tool::function::read_arguments(&__args)?;
                    #execute
                }

                async fn reconcile(
                    &self,
                    _: &#krate::tool::function::EffectRef,
                    _: &str,
                ) -> #krate::tool::Reconciled {
                    #krate::tool::Reconciled::Unknown
                }
            }
        }
    }

    fn argument_struct(&self, krate: &Path, arguments: &Ident) -> TokenStream {
        if let Some(ty) = self.function.args_struct() {
            return quote!(type #arguments = #ty;);
        }
        let serde = quote!(#krate::__private::serde).to_string();
        let schemars = quote!(#krate::__private::schemars).to_string();
        let (mut fields, mut defaults) = (Vec::new(), Vec::new());
        for argument in self.function.arguments() {
            let Argument {
                name, ty, default, ..
            } = argument;
            let description = self.describe(argument).map(|text| quote!(#[doc = #text]));
            let serde_default = default.as_ref().map(|expression| {
                let function = format_ident!("{}Default_{}", arguments, name.unraw());
                let path = function.to_string();
                defaults.push(quote! {
                    #[allow(non_snake_case, reason = "named after the struct it belongs to")]
                    fn #function() -> #ty { #expression }
                    // MAC-4: a default is recorded in the schema, so it must have a JSON form.
                    const _: fn() = || {
                        fn recorded<T: #krate::__private::serde::Serialize>(_: fn() -> T) {}
                        recorded(#function);
                    };
                });
                quote!(#[serde(default = #path)])
            });
            fields.push(quote!(#description #serde_default #name: #ty));
        }
        quote! {
            #(#defaults)*

            #[derive(#krate::__private::serde::Deserialize, #krate::__private::schemars::JsonSchema)]
            #[serde(crate = #serde, deny_unknown_fields)]
            #[schemars(crate = #schemars)]
            struct #arguments { #(#fields),* }
        }
    }

    /// What the model reads about an argument: its own description, else the `# Arguments` list.
    fn describe(&self, argument: &Argument) -> Option<String> {
        argument.description.clone().or_else(|| {
            self.documentation
                .arguments
                .iter()
                .find(|(name, text, _)| argument.name.unraw() == name && !text.is_empty())
                .map(|(_, text, _)| text.clone())
        })
    }

    fn spec(&self, krate: &Path, arguments: &Ident) -> TokenStream {
        let attributes = self.attributes;
        let (name, description) = (&self.name, &self.description);
        let title = attributes.title.as_ref().map(|title: &LitStr| {
            quote!(spec.title = ::core::option::Option::Some(::std::string::String::from(#title));)
        });
        let read_only = attributes
            .read_only
            .then(|| quote!(spec = spec.read_only();));
        let effect = attributes.effect.as_ref().map(|effect| {
            let declaration = match effect {
                Effect::Pure => quote!(Pure),
                Effect::Undeclared => quote!(Undeclared),
                Effect::Declared(..) => quote!(Declared {
                    dedupe: false,
                    reconcile: false
                }),
            };
            quote!(spec.effect = #krate::tool::EffectDeclaration::#declaration;)
        });
        let lifecycle = if self.function.is_async {
            quote!(AsyncCoroutine)
        } else {
            quote!(SyncFunction)
        };
        let concurrency = attributes
            .concurrency_safe
            .map(|safe| quote!(spec.concurrency_safe = ::core::option::Option::Some(#safe);));
        let approval = match &attributes.needs_approval {
            None | Some(Approval::Never) => quote!(),
            Some(Approval::Always) => {
                quote!(spec.needs_approval = #krate::tool::ApprovalNeed::Always;)
            }
            Some(Approval::Predicate(_)) => {
                quote!(spec.needs_approval = #krate::tool::ApprovalNeed::Predicate;)
            }
        };
        let timeout = attributes.timeout_ms.map(|milliseconds| {
            quote! {
                spec.timeout = ::core::option::Option::Some(::core::time::Duration::from_millis(#milliseconds));
            }
        });
        let attempts = attributes
            .max_attempts
            .map(|count| quote!(spec.retry.max_attempts = #count;));
        let characters = attributes
            .result_max_chars
            .map(|count| quote!(spec.result_max_chars = ::core::option::Option::Some(#count);));
        let idempotent = attributes
            .idempotent
            .then(|| quote!(spec.idempotent = true;));
        let interaction = attributes
            .requires_user_interaction
            .then(|| quote!(spec.requires_user_interaction = true;));
        // TOL-9: an open world means the network.
        let (fs_read, fs_write, command) =
            (attributes.fs_read, attributes.fs_write, attributes.command);
        let network = attributes.network || attributes.open_world == Some(true);
        let hints: Vec<TokenStream> =
            [("destructiveHint", attributes.destructive), ("openWorldHint", attributes.open_world)]
                .into_iter()
                .filter_map(|(hint, value)| {
                    let value = value?;
                    Some(quote!((::std::string::String::from(#hint), #krate::__private::serde_json::Value::Bool(#value))))
                })
                .collect();
        let annotations = (!hints.is_empty()).then(|| {
            quote! {
                spec.annotations = ::core::option::Option::Some(#krate::tool::spec::ToolAnnotations {
                    hints: ::core::iter::FromIterator::from_iter([#(#hints),*]),
                    trusted: true,
                });
            }
        });
        quote! {
            let schema = #krate::__private::schemars::SchemaGenerator::default()
                .into_root_schema_for::<#arguments>()
                .to_value();
            let mut spec = #krate::tool::ToolSpec::new(
                #name,
                #description,
                #krate::tool::function::input_schema(schema),
            )
            .with_lifecycle(#krate::tool::ToolLifecycle::#lifecycle);
            spec.permissions = #krate::tool::Permissions {
                filesystem_read: #fs_read,
                filesystem_write: #fs_write,
                network: #network,
                command: #command,
            };
            #title #read_only #effect #concurrency #approval #timeout #attempts #characters #idempotent
            #interaction #annotations
            spec
        }
    }

    fn effect(&self, krate: &Path) -> TokenStream {
        let Some(Effect::Declared(parts, _)) = &self.attributes.effect else {
            return quote! {
                ::core::result::Result::Ok(#krate::tool::default_effect(self.spec(), __slot))
            };
        };
        let parts = template_tokens(krate, parts);
        let key = match &self.attributes.idempotency {
            Some((parts, _)) => {
                let parts = template_tokens(krate, parts);
                quote!(::core::option::Option::Some(&#parts))
            }
            None => quote!(::core::option::Option::None),
        };
        quote!(#krate::tool::function::declared_effect(&#parts, #key, __args, __slot))
    }

    fn execute(&self, krate: &Path, callee: &TokenStream, host: Option<&Type>) -> TokenStream {
        let is_async = self.function.is_async;
        let mut inputs = Vec::new();
        if host.is_some() {
            inputs.push(if is_async {
                quote!(&self.0)
            } else {
                quote!(&__host)
            });
        }
        let context = if is_async {
            quote!(__context)
        } else {
            quote!(__inner)
        };
        for parameter in &self.function.parameters {
            inputs.push(match parameter {
                Parameter::Context { by_reference: true } => quote!(&#context),
                Parameter::Context {
                    by_reference: false,
                } => context.clone(),
                Parameter::Struct(_) => quote!(__arguments),
                Parameter::Argument(argument) => {
                    let name = &argument.name;
                    quote!(__arguments.#name)
                }
            });
        }
        if is_async {
            return self.respond(krate, &quote!(#callee(#(#inputs),*).await));
        }
        let has_context = self
            .function
            .parameters
            .iter()
            .any(|parameter| matches!(parameter, Parameter::Context { .. }));
        let inner =
            has_context.then(|| quote!(let __inner = ::core::clone::Clone::clone(&__context);));
        let host = host.map(|_| quote!(let __host = ::std::sync::Arc::clone(&self.0);));
        let respond = self.respond(krate, &quote!(#callee(#(#inputs),*)));
        quote! {
            #inner
            #host
            __context.run_blocking(move || { #respond }).await
        }
    }

    /// MAC-6. The spans make a missing conversion an error at the return type.
    fn respond(&self, krate: &Path, call: &TokenStream) -> TokenStream {
        let span = self.output_span;
        let own = |value: TokenStream| {
            quote_spanned! {span=>
                ::core::result::Result::Ok(#krate::tool::Returned::Result(::std::boxed::Box::new(#value)))
            }
        };
        let plain =
            |value: TokenStream| quote_spanned!(span=> #krate::tool::function::returned(&#value));
        let success = match self.function.output {
            Output::Value => return plain(call.clone()),
            Output::ToolResult => return own(call.clone()),
            Output::FallibleValue => plain(quote!(__output)),
            Output::FallibleToolResult => own(quote!(__output)),
        };
        let failure = quote_spanned! {span=>
            ::core::convert::Into::<#krate::tool::ToolError>::into(__error)
        };
        quote! {
            match #call {
                ::core::result::Result::Ok(__output) => #success,
                ::core::result::Result::Err(__error) => ::core::result::Result::Err(#failure),
            }
        }
    }
}

fn template_tokens(krate: &Path, parts: &[Part]) -> TokenStream {
    let parts = parts.iter().map(|part| match part {
        Part::Text(text) => quote!(#krate::tool::function::TemplatePart::Text(#text)),
        Part::Argument(name) => quote!(#krate::tool::function::TemplatePart::Argument(#name)),
        Part::Slot => quote!(#krate::tool::function::TemplatePart::Slot),
    });
    quote!([#(#parts),*])
}

/// A template sees the model's arguments as they came, so it may only use those that must be there.
fn check_placeholders(parts: &[Part], span: Span, function: &Function, errors: &mut Errors) {
    if function.args_struct().is_some() {
        return;
    }
    for part in parts {
        let Part::Argument(name) = part else { continue };
        match function
            .arguments()
            .find(|argument| argument.name.unraw() == name)
        {
            None => errors.push(span, format!("`{{{name}}}` is no argument of this tool")),
            Some(argument) => {
                let optional =
                    signature::last_segment(&argument.ty).is_some_and(|last| last == "Option");
                if optional || argument.default.is_some() {
                    errors.push(
                        span,
                        format!("`{{{name}}}` is not required, so it may be missing"),
                    );
                }
            }
        }
    }
}
