//! What an `impl` block becomes: one tool per method marked `#[tool]`, and `Toolset` for the type.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{Attribute, ImplItem, ItemImpl, Meta, parse_quote};

use crate::attributes::{ToolAttributes, ToolsetAttributes};
use crate::expand::Plan;
use crate::pascal_case::pascal_case;
use crate::signature::{self, Errors, Place};

/// Expands `#[toolset]`.
pub(crate) fn toolset(attributes: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let attributes = ToolsetAttributes::read(attributes, &mut errors);
    let mut item: ItemImpl = match syn::parse2(item) {
        Ok(item) => item,
        Err(error) => {
            errors.push(error.span(), "`#[toolset]` stands on an `impl` block");
            return errors.into_tokens();
        }
    };
    if let Some((path, _)) = &item.trait_ {
        errors.at(
            path,
            "`#[toolset]` stands on an `impl` block of the type itself",
        );
    }
    if !item.generics.params.is_empty() {
        errors.at(
            &item.generics,
            "a toolset is not generic: its tools' schemas must be known",
        );
    }
    let krate = attributes
        .crate_path
        .clone()
        .unwrap_or_else(|| parse_quote!(::qitos));
    let host = (*item.self_ty).clone();
    let (mut implementations, mut constructors) = (Vec::new(), Vec::new());
    for member in &mut item.items {
        let ImplItem::Fn(method) = member else {
            continue;
        };
        let Some(tokens) = take_tool_attribute(&mut method.attrs, &mut errors) else {
            continue;
        };
        let before = errors.0.len();
        let tool_attributes = ToolAttributes::read(tokens, &mut errors);
        let function = signature::read(&mut method.sig, Place::Method, &mut errors);
        let plan = Plan::new(
            &tool_attributes,
            &method.attrs,
            &method.sig,
            function,
            &mut errors,
        );
        let name = &method.sig.ident;
        let tool = format_ident!("__{}Tool", pascal_case(name));
        constructors.push(quote! {
            ::std::sync::Arc::new(#tool(::std::sync::Arc::clone(&self))) as ::std::sync::Arc<dyn #krate::tool::Tool>
        });
        if errors.0.len() > before {
            continue;
        }
        let krate = tool_attributes.crate_path.as_ref().unwrap_or(&krate);
        let implementation = plan.expand(krate, &tool, &quote!(<#host>::#name), Some(&host));
        let label = tool.to_string();
        implementations.push(quote! {
            struct #tool(::std::sync::Arc<#host>);

            impl ::core::fmt::Debug for #tool {
                fn fmt(&self, formatter: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                    formatter.write_str(#label)
                }
            }

            #implementation
        });
    }
    if constructors.is_empty() && errors.0.is_empty() {
        errors.at(
            &item.self_ty,
            "a toolset needs at least one method marked `#[tool]`",
        );
    }
    if !errors.0.is_empty() {
        return errors.into_tokens();
    }
    let namespace = match &attributes.namespace {
        Some(namespace) => quote!(::core::option::Option::Some(#namespace)),
        None => quote!(::core::option::Option::None),
    };
    quote! {
        #item

        const _: () = {
            #(#implementations)*

            impl #krate::tool::function::Toolset for #host {
                fn namespace(&self) -> ::core::option::Option<&str> {
                    #namespace
                }

                fn tools(
                    self: ::std::sync::Arc<Self>,
                ) -> ::std::vec::Vec<::std::sync::Arc<dyn #krate::tool::Tool>> {
                    ::std::vec![#(#constructors),*]
                }
            }
        };
    }
}

/// Takes `#[tool]` or `#[tool(…)]`, under whatever path, off a method.
fn take_tool_attribute(
    attributes: &mut Vec<Attribute>,
    errors: &mut Errors,
) -> Option<TokenStream> {
    let mut found = None;
    attributes.retain(|attribute| {
        let is_tool = attribute
            .path()
            .segments
            .last()
            .is_some_and(|segment| segment.ident == "tool");
        if is_tool {
            if found.is_some() {
                errors.at(attribute, "`#[tool]` is given twice");
            }
            found = Some(match &attribute.meta {
                Meta::List(list) => list.tokens.clone(),
                Meta::Path(_) => TokenStream::new(),
                Meta::NameValue(_) => {
                    errors.at(attribute, "`#[tool]` takes a list: `#[tool(…)]`");
                    TokenStream::new()
                }
            });
        }
        !is_tool
    });
    found
}
