//! Rule: the type of a function's tool is named like the function, in PascalCase.

use proc_macro2::Ident;
use syn::ext::IdentExt;

/// `read_file` → `ReadFile`, with the span of the function's name.
pub(crate) fn pascal_case(function: &Ident) -> Ident {
    let name: String = function
        .unraw()
        .to_string()
        .split('_')
        .map(|word| {
            let mut letters = word.chars();
            match letters.next() {
                Some(first) => first.to_ascii_uppercase().to_string() + letters.as_str(),
                None => String::new(),
            }
        })
        .collect();
    let starts_well = name.starts_with(|first: char| first.is_alphabetic());
    // A function named `_` or `_1` has no words to begin with.
    let name = if starts_well {
        name
    } else {
        format!("Tool{name}")
    };
    Ident::new(&name, function.span())
}
