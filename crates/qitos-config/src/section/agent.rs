//! `agent`, `model` and `tools`.

use crate::document::{Kind, Node};
use crate::field::{Field, Shape, Text, WhenAbsent};

section! {
    /// `agent`: who acts and how its text is read.
    #[derive(Default)]
    Agent, AgentEdit {
        /// The agent's name; at most 128 characters.
        text name = "name": Shape::Text(Text::NonBlank { max_chars: 128 }), WhenAbsent::Required;
        /// The text protocol; `auto` asks the model and falls back to `react_text_v1`.
        text protocol = "protocol": Shape::Text(Text::Name), WhenAbsent::Text("auto");
        /// The parser; `auto` takes the protocol's own, any other must be it.
        text parser = "parser": Shape::Text(Text::Name), WhenAbsent::Text("auto");
        /// Seed of everything the agent draws.
        integer seed = "seed": Shape::Integer { min: 0, max: None, nullable: false }, WhenAbsent::Integer(0);
    }
}

section! {
    /// A credential, by the name under which a resolver knows it.
    #[derive(Default)]
    Credential, CredentialEdit {
        /// The reference; never the secret itself.
        text reference = "ref": Shape::Text(Text::Token { empty: false }), WhenAbsent::Required;
    }
}

section! {
    /// `model.request`: what is asked of each response.
    #[derive(Default)]
    ModelRequest, ModelRequestEdit {
        /// Sampling temperature; null is not sent.
        opt_number temperature = "temperature": Shape::Number { min: 0.0, max: None, nullable: true }, WhenAbsent::Null;
        /// Nucleus sampling; null is not sent.
        opt_number top_p = "top_p": Shape::Number { min: 0.0, max: Some(1.0), nullable: true }, WhenAbsent::Null;
        /// Output limit of one response, in tokens.
        integer max_tokens = "max_tokens": Shape::Integer { min: 1, max: None, nullable: false }, WhenAbsent::Integer(2048);
        /// Time limit of one request, in seconds.
        number timeout_seconds = "timeout_seconds": Shape::Number { min: 0.001, max: None, nullable: false }, WhenAbsent::Number(180.0);
        /// Always 0: retrying is the runtime's decision.
        integer retries = "retries": Shape::Integer { min: 0, max: Some(0), nullable: false }, WhenAbsent::Integer(0);
        /// Provider-specific keys of the request body; none that the client sets itself and no credential.
        map extra_body = "extra_body": Shape::ExtraBody, WhenAbsent::EmptyMap;
    }
}

section! {
    /// `model`: which model answers.
    #[derive(Default)]
    Model, ModelEdit {
        /// The registered provider: fake, openai_compatible, openai, anthropic or one of the program's own.
        text provider = "provider": Shape::Text(Text::Name), WhenAbsent::Required;
        /// The model's name at the provider.
        text model = "model": Shape::Text(Text::NonBlank { max_chars: usize::MAX }), WhenAbsent::Required;
        /// Where the key comes from; required unless the provider needs none.
        opt_section<Credential, CredentialEdit> credential = "credential": Shape::Section(Credential::fields), WhenAbsent::Absent;
        /// The endpoint: absolute, http or https, no user, query or fragment; plain http only for loopback.
        text base_url = "base_url": Shape::Text(Text::Endpoint), WhenAbsent::Text("");
        /// The dialect of the provider; its own default when absent, never silently swapped.
        opt_text api_mode = "api_mode": Shape::Text(Text::Name), WhenAbsent::Absent;
        /// Size of the model's context, in tokens; null when the provider says it.
        opt_integer context_window = "context_window": Shape::Integer { min: 1, max: None, nullable: true }, WhenAbsent::Null;
        /// What is asked of each response.
        section<ModelRequest, ModelRequestEdit> request = "request": Shape::Section(ModelRequest::fields), WhenAbsent::Section;
    }
}

choices! {
    /// When tools may, or must, be called.
    ToolPolicy {
        Auto = "auto" "The model decides.",
        RequiredForNextDecision = "required_for_next_decision" "The next decision must call a tool.",
        RequiredBeforeFinal = "required_before_final" "At least one tool call precedes the final answer.",
        Disabled = "disabled" "No tool is offered.",
    }
}

section! {
    /// `tools.options`: how tools run.
    #[derive(Default)]
    ToolOptions, ToolOptionsEdit {
        /// Refuse a model without native tool calls.
        flag native_tool_calls_required = "native_tool_calls_required": Shape::Flag, WhenAbsent::Flag(false);
        /// How many calls run at once; 1 runs them in order.
        integer max_concurrency = "max_concurrency": Shape::Integer { min: 1, max: Some(64), nullable: false }, WhenAbsent::Integer(4);
        /// Approve calls whose effects stay in the sandbox; never publication or other effects outside.
        flag auto_approve = "auto_approve": Shape::Flag, WhenAbsent::Flag(false);
    }
}

section! {
    /// `tools`: what the agent can do.
    #[derive(Default)]
    Tools, ToolsEdit {
        /// A set of tools: none, env_coding, demo_notes or a registered one.
        text preset = "preset": Shape::Text(Text::Name), WhenAbsent::Text("none");
        /// Single registered tools, each once.
        texts include = "include": Shape::Texts { item: Text::Name, unique: true }, WhenAbsent::EmptyList;
        /// When tools may, or must, be called.
        choice<ToolPolicy> policy = "policy": Shape::Choice(ToolPolicy::WORDS), WhenAbsent::Text("auto");
        /// How tools run.
        section<ToolOptions, ToolOptionsEdit> options = "options": Shape::Section(ToolOptions::fields), WhenAbsent::Section;
    }
}
