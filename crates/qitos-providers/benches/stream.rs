//! Workload W3 for Chat (`text20k`, `args256k`) with its floors, and the cost of a scripted step.
//!
//! The server is another process, HTTP/1.1 chunked in 16 KiB writes with the body ready in memory. All
//! figures are medians of one run; the bound is the ratio to a typed borrowing parse from memory.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a measurement, not a library"
)]

use std::borrow::Cow;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use qitos_contracts::digest::Digest;
use qitos_contracts::ids::RequestId;
use qitos_contracts::log::{
    AssistantItem, AssistantPart, ContentBlock, ExchangeLog, Item, ItemBody, UserItem,
};
use qitos_contracts::model::*;
use qitos_kit::loopback::{LoopbackServer, Reply};
use qitos_providers::openai_chat::ChatSettings;
use qitos_providers::scripted::{Answer, Recording, ScriptedModel, Step};
use serde::Deserialize;
use serde_json::json;

const RUNS: usize = 9;

fn event(delta: &str, finish: &str) -> String {
    format!(
        "data: {{\"id\":\"chatcmpl-AbCdEfGhIjKlMnOpQrStUvWxYz012\",\"object\":\"chat.completion.chunk\",\
         \"created\":1764500000,\"model\":\"bench-model-2026-11-01\",\"system_fingerprint\":\"fp_0123456789\",\
         \"choices\":[{{\"index\":0,\"delta\":{delta},\"logprobs\":null,\"finish_reason\":{finish}}}]}}\n\n"
    )
}

fn ending(finish: &str) -> String {
    event("{}", finish)
        + "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":20000,\"total_tokens\":20012}}\n\n"
        + "data: [DONE]\n\n"
}

fn body(workload: &str) -> String {
    let mut body = event("{\"role\":\"assistant\",\"content\":\"\"}", "null");
    if workload == "text20k" {
        for _ in 0..20_000 {
            body.push_str(&event("{\"content\":\"word \"}", "null"));
        }
        return body + &ending("\"stop\"");
    }
    let arguments = format!("{{\"a\":\"{}\"}}", "x".repeat(262_144 - 8));
    let first = "{\"tool_calls\":[{\"index\":0,\"id\":\"call_1\",\"type\":\"function\",\"function\":{\"name\":\"step\",\"arguments\":\"\"}}]}";
    body.push_str(&event(first, "null"));
    for piece in arguments.as_bytes().chunks(8) {
        let piece = String::from_utf8(piece.to_vec()).unwrap();
        let delta = json!({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]});
        body.push_str(&event(&delta.to_string(), "null"));
    }
    body + &ending("\"tool_calls\"")
}

/// The server process: as many replies as asked for, until its input closes.
fn serve(workload: &str) {
    let body = body(workload);
    let reply = || {
        let mut reply = Reply::event_stream();
        for piece in body.as_bytes().chunks(16 * 1024) {
            reply = reply.piece(piece);
        }
        reply.end()
    };
    let server = LoopbackServer::start((0..4 * RUNS).map(|_| reply()).collect()).unwrap();
    println!("{}", server.base_url());
    std::io::stdout().flush().unwrap();
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

#[derive(Deserialize)]
struct FloorChunk<'a> {
    #[serde(borrow, default)]
    choices: Vec<FloorChoice<'a>>,
}

#[derive(Deserialize)]
struct FloorChoice<'a> {
    #[serde(borrow)]
    delta: FloorDelta<'a>,
    #[serde(borrow)]
    finish_reason: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct FloorDelta<'a> {
    #[serde(borrow, default)]
    content: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    tool_calls: Vec<FloorCall<'a>>,
}

#[derive(Deserialize)]
struct FloorCall<'a> {
    #[serde(borrow)]
    function: FloorFunction<'a>,
}

#[derive(Deserialize)]
struct FloorFunction<'a> {
    #[serde(borrow, default)]
    arguments: Cow<'a, str>,
}

fn parse_floor(body: &str) -> usize {
    let (mut text, mut arguments, mut finished) = (String::new(), String::new(), 0);
    for line in body.lines() {
        let Some(data) = line.strip_prefix("data: ") else {
            continue;
        };
        if data == "[DONE]" {
            continue;
        }
        let chunk: FloorChunk<'_> = serde_json::from_str(data).unwrap();
        for choice in &chunk.choices {
            text.push_str(choice.delta.content.as_deref().unwrap_or_default());
            for call in &choice.delta.tool_calls {
                arguments.push_str(&call.function.arguments);
            }
            finished += usize::from(choice.finish_reason.is_some());
        }
    }
    text.len() + arguments.len() + finished
}

/// Reads one answer's body and nothing else.
fn read_floor(base_url: &str) -> usize {
    let mut stream = std::net::TcpStream::connect(base_url.replace("http://", "")).unwrap();
    stream
        .write_all(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n")
        .unwrap();
    let mut buffer = vec![0u8; 64 * 1024];
    let mut total = 0;
    loop {
        match stream.read(&mut buffer).unwrap() {
            0 => return total,
            count => total += count,
        }
    }
}

#[derive(Default)]
struct Counting(usize);

impl DeltaSink for Counting {
    fn delta(&mut self, text: &str) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        self.0 += text.len();
        Ok(())
    }
}

fn view(target: Target, log: &ExchangeLog) -> RequestView {
    RequestView {
        request_id: RequestId::of_view(&Digest::of(log.chain().as_bytes())),
        target: Arc::new(target),
        source: ViewSource {
            exchange_log_id: "log".into(),
            exchange_log_digest: Digest::ZERO,
            first_item: 0,
        },
        items: log.items().clone(),
        instructions: Arc::new([]),
        tool_schemas: Arc::new(ToolSchemas::new(vec![ToolSchema {
            name: "step".into(),
            description: "one step".into(),
            input_schema: json!({"type": "object"}),
            strict_schema: None,
        }])),
        contributions: Vec::new(),
        capability_requirements: Vec::new(),
        reasoning_policy: ReasoningPolicy::default(),
        continuation: None,
        context_budget: ContextBudget::default(),
        selection: SelectionReport::default(),
        compaction_receipts: Vec::new(),
        steering_boundary: SteeringBoundary::default(),
        protocol_id: "native_tool_calls_v1".into(),
        tool_use_policy: ToolUsePolicy::Auto,
        tool_use_satisfied: false,
        max_output_tokens: None,
        prefix_digests: PrefixDigests {
            tools: Digest::ZERO,
            instructions: Digest::ZERO,
            contributions: Digest::ZERO,
            items: Digest::ZERO,
        },
        view_digest: Digest::ZERO,
    }
}

fn median(mut measure: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..RUNS)
        .map(|_| {
            let started = Instant::now();
            measure();
            started.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[RUNS / 2]
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

fn measure_stream(workload: &str) {
    let mut server = Command::new(std::env::current_exe().unwrap())
        .args(["--serve", workload])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut base_url = String::new();
    let stdout = server.stdout.take().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut base_url).unwrap();
    let base_url = base_url.trim().to_owned();
    let text = body(workload);

    let target = Target::new("openai-compatible", "bench", "openai", "chat_completions").unwrap();
    let model = ChatSettings::new(target.clone(), base_url.as_str())
        .over_network()
        .unwrap();
    let view = view(target, &ExchangeLog::new());
    let (payload, _) = model
        .codec()
        .encode(&view, model.capabilities(), false)
        .unwrap();
    let runtime = runtime();
    let parse_us = median(|| assert!(parse_floor(&text) > 100_000));
    let read_us = median(|| assert!(read_floor(&base_url) > text.len()));
    let stream_us = median(|| {
        let mut sink = Counting::default();
        let raw = runtime
            .block_on(model.send(payload.clone(), Some(&mut sink)))
            .unwrap();
        let decoded = model.codec().decode(raw, &view).unwrap();
        assert_eq!(decoded.text().len(), sink.0);
        assert!(sink.0 == 100_000 || decoded.call_count() == 1);
    });
    drop(server.stdin.take());
    let _ = server.wait();
    let ratio = stream_us / parse_us;
    println!(
        "{}",
        json!({
            "workload": "stream",
            "parameters": {"dialect": "chat", "case": workload, "body_bytes": text.len()},
            "figures": {"stream_us": stream_us, "parse_floor_us": parse_us, "read_floor_us": read_us},
            "ratios": {"stream_to_parse": ratio},
            "bounds": {"stream_to_parse": {"max": 2.5, "met": ratio <= 2.5}},
        })
    );
}

/// Answers and user items in turn; every request encodes the whole history and writes it out.
fn measure_scripted(steps: usize) {
    let model = ScriptedModel::from_fn("bench", |index| {
        let id = format!("call_{index:06}");
        Some(Step::answer(Answer::call(
            id,
            "step",
            format!("{{\"i\":{index}}}"),
        )))
    })
    .unwrap()
    .with_recording(Recording::Last(0));
    let runtime = runtime();
    let mut log = ExchangeLog::new();
    let mut scratch = Vec::new();
    let mut append = |log: &mut ExchangeLog, index: usize, body: ItemBody| {
        let item = Item {
            item_id: format!("item-{index}").parse().unwrap(),
            exchange_id: log.exchange_for(&body),
            body,
        };
        scratch.clear();
        log.append(item, &mut scratch).unwrap();
    };
    let template = view((**model.target()).clone(), &log);
    let (mut first, mut last) = (0.0, 0.0);
    let mut own = 0.0;
    let (mut encode_us, mut send_us, mut decode_us) = (0.0, 0.0, 0.0);
    let since = |started: Instant| started.elapsed().as_secs_f64() * 1e6;
    for step in 0..steps {
        let user = ItemBody::User(UserItem {
            content: vec![ContentBlock::text(format!(
                "ok {step:06} xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
            ))],
            ..UserItem::default()
        });
        append(&mut log, 2 * step, user);
        let view = RequestView {
            items: log.items().clone(),
            ..template.clone()
        };
        let started = Instant::now();
        let (payload, _) = model
            .codec()
            .encode(&view, model.capabilities(), false)
            .unwrap();
        let encoded = since(started);
        let raw = runtime.block_on(model.send(payload, None)).unwrap();
        let sent = since(started);
        let decoded = model.codec().decode(raw, &view).unwrap();
        let elapsed = since(started);
        encode_us += encoded;
        send_us += sent - encoded;
        decode_us += elapsed - sent;
        assert_eq!(decoded.call_count(), 1);
        own += elapsed;
        if step < steps / 10 {
            first += elapsed;
        }
        if step >= steps - steps / 10 {
            last += elapsed;
        }
        let text = AssistantPart::Content(ContentBlock::text(
            "called the tool and got its answer back",
        ));
        let answer = AssistantItem {
            parts: vec![text],
            ..AssistantItem::default()
        };
        append(&mut log, 2 * step + 1, ItemBody::Assistant(answer));
    }
    let tenth = (steps / 10) as f64;
    println!(
        "{}",
        json!({
            "workload": "scripted_step",
            "parameters": {"steps": steps},
            "figures": {
                "mean_us": own / steps as f64,
                "encode_us": encode_us / steps as f64,
                "send_us": send_us / steps as f64,
                "decode_us": decode_us / steps as f64,
                "first_tenth_us": first / tenth,
                "last_tenth_us": last / tenth,
                "slope_us_per_step_held": (last - first) / tenth / (0.9 * steps as f64),
            },
        })
    );
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(position) = arguments.iter().position(|argument| argument == "--serve") {
        serve(&arguments[position + 1]);
        return;
    }
    for workload in ["text20k", "args256k"] {
        measure_stream(workload);
    }
    for steps in [1_000, 10_000] {
        measure_scripted(steps);
    }
}
