use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::*;

const LIMIT: Duration = Duration::from_secs(5);

fn connect(server: &LoopbackServer) -> TcpStream {
    let address = server.base_url().replace("http://", "");
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .write_all(b"POST /x HTTP/1.1\r\nContent-Length: 3\r\nX-A: b\r\n\r\nabc")
        .unwrap();
    stream
}

#[test]
fn a_reply_is_sent_as_scripted_and_the_request_recorded() {
    let reply = Reply::event_stream().piece("data: 1\n\n").piece("").end();
    let server = LoopbackServer::start(vec![reply]).unwrap();
    let mut text = String::new();
    connect(&server).read_to_string(&mut text).unwrap();
    assert!(
        text.ends_with("\r\n\r\n9\r\ndata: 1\n\n\r\n0\r\n\r\n"),
        "{text}"
    );
    let requests = server.requests();
    assert_eq!(requests[0].request_line, "POST /x HTTP/1.1");
    assert_eq!(requests[0].header("x-a"), Some("b"));
    assert_eq!(requests[0].body, b"abc");
    assert!(server.wait_until_no_connection(LIMIT));
}

#[test]
fn a_hanging_connection_is_counted_until_the_client_lets_go() {
    let server = LoopbackServer::start(vec![Reply::event_stream().hang()]).unwrap();
    let stream = connect(&server);
    assert!(server.wait_for_requests(1, LIMIT));
    assert_eq!(server.open_connections(), 1);
    drop(stream);
    assert!(server.wait_until_no_connection(LIMIT));
    assert_eq!(server.accepted_connections(), 1);
}

#[test]
fn a_reset_reaches_the_client_after_the_bytes_before_it() {
    let gate = Gate::new();
    let reply = Reply::event_stream()
        .piece("data: 1\n\n")
        .wait(&gate)
        .reset();
    let server = LoopbackServer::start(vec![reply]).unwrap();
    let mut stream = connect(&server);
    let mut seen = Vec::new();
    let mut buffer = [0u8; 64];
    while !seen.ends_with(b"data: 1\n\n\r\n") {
        let count = stream.read(&mut buffer).unwrap();
        assert!(count > 0);
        seen.extend_from_slice(&buffer[..count]);
    }
    gate.open();
    let error = stream.read(&mut buffer).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

#[test]
fn dropping_the_server_ends_hanging_connections() {
    let server = LoopbackServer::start(vec![Reply::event_stream().hang()]).unwrap();
    let mut stream = connect(&server);
    assert!(server.wait_for_requests(1, LIMIT));
    drop(server);
    let mut text = Vec::new();
    let _ = stream.read_to_end(&mut text);
}
