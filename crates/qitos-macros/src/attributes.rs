//! Rule: which keys an attribute may have and what their values look like (MAC-1, MAC-8).

use proc_macro2::{Span, TokenStream};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{Expr, ExprLit, ExprUnary, Ident, Lit, LitStr, Path, Token, UnOp};

use crate::signature::Errors;
use crate::template::{self, Part};

/// `key`, `key = value` or `key(path)`.
struct Entry {
    key: Ident,
    value: Value,
}

enum Value {
    Flag,
    Expression(Box<Expr>),
    Path(Path),
}

impl Parse for Entry {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let key = input.call(Ident::parse_any)?;
        let value = if input.peek(Token![=]) {
            input.parse::<Token![=]>()?;
            if key == "crate" {
                Value::Path(input.call(Path::parse_mod_style)?)
            } else {
                Value::Expression(input.parse()?)
            }
        } else if input.peek(syn::token::Paren) {
            let inner;
            syn::parenthesized!(inner in input);
            Value::Path(inner.parse()?)
        } else {
            Value::Flag
        };
        Ok(Entry { key, value })
    }
}

/// When a call needs a person's yes.
pub(crate) enum Approval {
    Never,
    Always,
    Predicate(Path),
}

/// The general effect of a tool.
pub(crate) enum Effect {
    Pure,
    Undeclared,
    Declared(Vec<Part>, Span),
}

/// What `#[tool(…)]` said.
#[derive(Default)]
pub(crate) struct ToolAttributes {
    pub(crate) name: Option<LitStr>,
    pub(crate) title: Option<LitStr>,
    pub(crate) description: Option<LitStr>,
    pub(crate) read_only: bool,
    pub(crate) concurrency_safe: Option<bool>,
    pub(crate) needs_approval: Option<Approval>,
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) max_attempts: Option<u32>,
    pub(crate) effect: Option<Effect>,
    pub(crate) idempotency: Option<(Vec<Part>, Span)>,
    pub(crate) idempotent: bool,
    pub(crate) destructive: Option<bool>,
    pub(crate) open_world: Option<bool>,
    pub(crate) network: bool,
    pub(crate) command: bool,
    pub(crate) fs_read: bool,
    pub(crate) fs_write: bool,
    pub(crate) result_max_chars: Option<u64>,
    pub(crate) requires_user_interaction: bool,
    pub(crate) crate_path: Option<Path>,
}

const KEYS: &str = "name, title, description, read_only, concurrency_safe, needs_approval, timeout_ms, max_attempts, \
                    effect, idempotency, idempotent, destructive, open_world, network, command, fs_read, fs_write, \
                    result_max_chars, requires_user_interaction, crate";

/// Parses the entries and refuses a key that stands twice.
fn entries(tokens: TokenStream, errors: &mut Errors) -> Vec<Entry> {
    let parsed = Punctuated::<Entry, Token![,]>::parse_terminated.parse2(tokens);
    let mut entries: Vec<Entry> = Vec::new();
    match parsed {
        Ok(parsed) => {
            for entry in parsed {
                if entries.iter().any(|known| known.key == entry.key) {
                    errors.push(entry.key.span(), format!("`{}` is given twice", entry.key));
                } else {
                    entries.push(entry);
                }
            }
        }
        Err(error) => errors.0.push(error),
    }
    entries
}

impl ToolAttributes {
    /// Reads the tokens between the brackets of `#[tool(…)]`.
    pub(crate) fn read(tokens: TokenStream, errors: &mut Errors) -> Self {
        let mut attributes = ToolAttributes::default();
        let mut read_only_at = None;
        let mut effect_at = None;
        for Entry { key, value } in entries(tokens, errors) {
            let span = key.span();
            let outcome = match key.to_string().as_str() {
                "name" => text(&key, &value).map(|literal| attributes.name = Some(literal)),
                "title" => text(&key, &value).map(|literal| attributes.title = Some(literal)),
                "description" => {
                    text(&key, &value).map(|literal| attributes.description = Some(literal))
                }
                "read_only" => boolean(&key, &value).map(|yes| {
                    attributes.read_only = yes;
                    read_only_at = yes.then_some(span);
                }),
                "concurrency_safe" => {
                    boolean(&key, &value).map(|yes| attributes.concurrency_safe = Some(yes))
                }
                "needs_approval" => {
                    approval(&key, value).map(|approval| attributes.needs_approval = Some(approval))
                }
                "timeout_ms" => {
                    number(&key, &value).map(|count| attributes.timeout_ms = Some(count))
                }
                "max_attempts" => {
                    number(&key, &value).map(|count| attributes.max_attempts = Some(count))
                }
                "effect" => {
                    effect_at = Some(span);
                    effect(&key, &value).map(|effect| attributes.effect = Some(effect))
                }
                "idempotency" => text(&key, &value).and_then(|literal| {
                    attributes.idempotency = Some((template::parse(&literal)?, literal.span()));
                    Ok(())
                }),
                "idempotent" => boolean(&key, &value).map(|yes| attributes.idempotent = yes),
                "destructive" => {
                    boolean(&key, &value).map(|yes| attributes.destructive = Some(yes))
                }
                "open_world" => boolean(&key, &value).map(|yes| attributes.open_world = Some(yes)),
                "network" => boolean(&key, &value).map(|yes| attributes.network = yes),
                "command" => boolean(&key, &value).map(|yes| attributes.command = yes),
                "fs_read" => boolean(&key, &value).map(|yes| attributes.fs_read = yes),
                "fs_write" => boolean(&key, &value).map(|yes| attributes.fs_write = yes),
                "result_max_chars" => {
                    number(&key, &value).map(|count| attributes.result_max_chars = Some(count))
                }
                "requires_user_interaction" => {
                    boolean(&key, &value).map(|yes| attributes.requires_user_interaction = yes)
                }
                "crate" => path(&key, value).map(|path| attributes.crate_path = Some(path)),
                _ => Err(syn::Error::new(
                    span,
                    format!("unknown key `{key}`; known: {KEYS}"),
                )),
            };
            if let Err(error) = outcome {
                errors.0.push(error);
            }
        }
        if let (Some(_), Some(effect_at)) = (read_only_at, effect_at) {
            errors.push(
                effect_at,
                "`read_only` and `effect` contradict each other: a read-only tool has no effect",
            );
        }
        if let Some((_, span)) = &attributes.idempotency
            && !matches!(attributes.effect, Some(Effect::Declared(..)))
        {
            errors.push(
                *span,
                "`idempotency` needs a declared effect: `effect = \"…\"`",
            );
        }
        if let Some(name) = &attributes.name
            && !is_tool_name(&name.value())
        {
            errors.push(name.span(), BAD_NAME);
        }
        attributes
    }
}

pub(crate) const BAD_NAME: &str =
    "not a tool name: 1 to 128 bytes, segments of [A-Za-z_][A-Za-z0-9_-]* joined by `.`";

/// TOL-1; the registry checks the same at run time.
pub(crate) fn is_tool_name(name: &str) -> bool {
    (1..=128).contains(&name.len())
        && name.split('.').all(|segment| {
            segment.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
                && segment
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
        })
}

/// What `#[toolset(…)]` said.
#[derive(Default)]
pub(crate) struct ToolsetAttributes {
    pub(crate) namespace: Option<LitStr>,
    pub(crate) crate_path: Option<Path>,
}

impl ToolsetAttributes {
    /// Reads the tokens between the brackets of `#[toolset(…)]`.
    pub(crate) fn read(tokens: TokenStream, errors: &mut Errors) -> Self {
        let mut attributes = ToolsetAttributes::default();
        for Entry { key, value } in entries(tokens, errors) {
            let outcome = match key.to_string().as_str() {
                "namespace" => {
                    text(&key, &value).map(|literal| attributes.namespace = Some(literal))
                }
                "crate" => path(&key, value).map(|path| attributes.crate_path = Some(path)),
                _ => Err(syn::Error::new(
                    key.span(),
                    format!("unknown key `{key}`; known: namespace, crate"),
                )),
            };
            if let Err(error) = outcome {
                errors.0.push(error);
            }
        }
        if let Some(namespace) = &attributes.namespace
            && !is_tool_name(&namespace.value())
        {
            errors.push(namespace.span(), BAD_NAME);
        }
        attributes
    }
}

/// What `#[arg(…)]` on a parameter said.
#[derive(Default)]
pub(crate) struct ArgAttributes {
    pub(crate) default: Option<Expr>,
    pub(crate) description: Option<LitStr>,
}

impl ArgAttributes {
    /// Reads the tokens between the brackets of `#[arg(…)]`.
    pub(crate) fn read(tokens: TokenStream, errors: &mut Errors) -> Self {
        let mut attributes = ArgAttributes::default();
        for Entry { key, value } in entries(tokens, errors) {
            let outcome = match (key.to_string().as_str(), &value) {
                ("default", Value::Expression(expression)) => {
                    attributes.default = Some((**expression).clone());
                    Ok(())
                }
                ("default", _) => Err(syn::Error::new(
                    key.span(),
                    "`default` needs a value: `default = …`",
                )),
                ("description", _) => {
                    text(&key, &value).map(|literal| attributes.description = Some(literal))
                }
                _ => Err(syn::Error::new(
                    key.span(),
                    format!("unknown key `{key}`; known: default, description"),
                )),
            };
            if let Err(error) = outcome {
                errors.0.push(error);
            }
        }
        attributes
    }
}

/// The literal of a value, looking through the invisible groups that `macro_rules` leaves.
fn literal<'value>(key: &Ident, value: &'value Value, wanted: &str) -> syn::Result<&'value Lit> {
    let refused = |span| Err(syn::Error::new(span, format!("`{key}` needs {wanted}")));
    match value {
        Value::Flag => refused(key.span()),
        Value::Path(path) => Err(syn::Error::new_spanned(
            path,
            format!("`{key}` needs {wanted}"),
        )),
        Value::Expression(expression) => {
            let mut expression = &**expression;
            while let Expr::Group(group) = expression {
                expression = &group.expr;
            }
            match expression {
                Expr::Lit(ExprLit { lit, .. }) => Ok(lit),
                other => Err(syn::Error::new_spanned(
                    other,
                    format!("`{key}` needs {wanted}"),
                )),
            }
        }
    }
}

fn text(key: &Ident, value: &Value) -> syn::Result<LitStr> {
    match literal(key, value, "a text literal")? {
        Lit::Str(text) if text.value().trim().is_empty() => Err(syn::Error::new(
            text.span(),
            format!("`{key}` must not be empty"),
        )),
        Lit::Str(text) => Ok(text.clone()),
        other => Err(syn::Error::new(
            other.span(),
            format!("`{key}` needs a text literal"),
        )),
    }
}

fn boolean(key: &Ident, value: &Value) -> syn::Result<bool> {
    if matches!(value, Value::Flag) {
        return Ok(true);
    }
    match literal(key, value, "`true` or `false`")? {
        Lit::Bool(yes) => Ok(yes.value),
        other => Err(syn::Error::new(
            other.span(),
            format!("`{key}` needs `true` or `false`"),
        )),
    }
}

fn number<N>(key: &Ident, value: &Value) -> syn::Result<N>
where
    N: std::str::FromStr + PartialEq + From<u8>,
    N::Err: std::fmt::Display,
{
    if let Value::Expression(expression) = value
        && let Expr::Unary(ExprUnary {
            op: UnOp::Neg(_), ..
        }) = &**expression
    {
        return Err(syn::Error::new_spanned(
            expression,
            format!("`{key}` must be at least 1"),
        ));
    }
    match literal(key, value, "a whole number")? {
        Lit::Int(number) => {
            let count: N = number.base10_parse()?;
            if count == N::from(0) {
                Err(syn::Error::new(
                    number.span(),
                    format!("`{key}` must be at least 1"),
                ))
            } else {
                Ok(count)
            }
        }
        other => Err(syn::Error::new(
            other.span(),
            format!("`{key}` needs a whole number"),
        )),
    }
}

fn path(key: &Ident, value: Value) -> syn::Result<Path> {
    match value {
        Value::Path(path) => Ok(path),
        _ => Err(syn::Error::new(
            key.span(),
            format!("`{}` needs a path: `{} = path`", key.unraw(), key.unraw()),
        )),
    }
}

fn approval(key: &Ident, value: Value) -> syn::Result<Approval> {
    if let Value::Path(path) = value {
        return Ok(Approval::Predicate(path));
    }
    boolean(key, &value)
        .map(|yes| {
            if yes {
                Approval::Always
            } else {
                Approval::Never
            }
        })
        .map_err(|error| {
            syn::Error::new(
                error.span(),
                "`needs_approval` needs `true`, `false` or a predicate: `needs_approval(path)`",
            )
        })
}

fn effect(key: &Ident, value: &Value) -> syn::Result<Effect> {
    let literal = text(key, value)?;
    match literal.value().as_str() {
        "pure" => Ok(Effect::Pure),
        "undeclared" => Ok(Effect::Undeclared),
        _ => {
            let parts = template::parse(&literal)?;
            // TOL-6: what is fixed must already look like a reference.
            let fits = |text: &str| {
                text.bytes().all(|byte| {
                    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b':' | b'-')
                })
            };
            for part in &parts {
                if let Part::Text(text) = part
                    && !fits(text)
                {
                    return Err(syn::Error::new(
                        literal.span(),
                        "an effect reference consists of letters, digits and `._:-`",
                    ));
                }
            }
            Ok(Effect::Declared(parts, literal.span()))
        }
    }
}
