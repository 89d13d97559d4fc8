//! The `#[tool]` and `#[toolset]` attributes of QitOS.
//!
//! `#[tool]` on a function makes a unit type named after it, in PascalCase, that implements `Tool`; the
//! function stays callable. `#[toolset]` on an `impl` block does the same for its methods marked `#[tool]` and
//! implements `Toolset` for the type. The facade crate re-exports both; section 1.3 of the tools specification
//! (MAC-1 to MAC-8).

mod attributes;
mod documentation;
mod expand;
mod pascal_case;
mod signature;
mod template;
mod toolset;

use proc_macro::TokenStream;

/// Makes a tool of a function.
///
/// | attribute | value | meaning |
/// |---|---|---|
/// | `name` | text | canonical name; default: the function's |
/// | `title` | text | shown to people |
/// | `description` | text | shown to the model; default: the doc comment up to its first heading |
/// | `read_only` | flag | changes nothing outside itself; excludes `effect` |
/// | `concurrency_safe` | flag or boolean | calls may overlap |
/// | `needs_approval` | flag, boolean, or `(path)` | asks a person, or the predicate `fn(&Value, &Facts) -> Result<bool, ToolError>` |
/// | `timeout_ms`, `max_attempts`, `result_max_chars` | number, at least 1 | as in the specification of a tool |
/// | `effect` | text | `"pure"`, `"undeclared"`, or a reference such as `"invoice:{id}"` over required arguments and `{slot_id}` |
/// | `idempotency` | text | a logical key of the same form; needs a declared effect |
/// | `idempotent`, `destructive`, `open_world`, `requires_user_interaction` | flag or boolean | declarations |
/// | `network`, `command`, `fs_read`, `fs_write` | flag or boolean | permissions asked for |
/// | `crate` | path | where `tool` and `__private` are found; default `::qitos` |
///
/// Parameters are owned types that deserialize and have a JSON Schema, or one struct marked `#[args]`; one
/// `CallCtx` (or `&CallCtx`) may stand among them. `Option<T>` and `#[arg(default = …)]` are not required.
/// Parameters are described by doc comments on them, by `#[arg(description = "…")]`, or by a `# Arguments`
/// list in the function's doc comment. A `fn` runs on a worker thread, an `async fn` as a future.
///
/// Anything else is a compile error at the place that is wrong (MAC-1, MAC-2).
#[proc_macro_attribute]
pub fn tool(attributes: TokenStream, item: TokenStream) -> TokenStream {
    expand::tool(attributes.into(), item.into()).into()
}

/// Makes tools of the methods of an `impl` block that are marked `#[tool]`.
///
/// | attribute | value | meaning |
/// |---|---|---|
/// | `namespace` | text | tools are registered as `<namespace>.<name>` |
/// | `crate` | path | as for `#[tool]`, for all methods |
///
/// The type must be `Send + Sync + 'static`; methods take `&self`. Register with
/// `ToolRegistry::register_toolset`.
#[proc_macro_attribute]
pub fn toolset(attributes: TokenStream, item: TokenStream) -> TokenStream {
    toolset::toolset(attributes.into(), item.into()).into()
}
