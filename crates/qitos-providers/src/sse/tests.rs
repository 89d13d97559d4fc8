use super::*;

type Owned = Vec<(String, String)>;

/// All events of `chunks` in order, then those of a clean end, or the error that stopped them.
fn decode(chunks: &[&[u8]], limits: SseLimits) -> (Owned, Option<SseError>) {
    let mut decoder = SseDecoder::new(limits);
    let mut events = Vec::new();
    for chunk in chunks {
        let mut position = 0;
        loop {
            match decoder.next_event(chunk, &mut position) {
                Ok(Some(event)) => events.push((event.kind.to_owned(), event.data.to_owned())),
                Ok(None) => break,
                Err(error) => return (events, Some(error)),
            }
        }
    }
    match decoder.finish() {
        Ok(Some(event)) => events.push((event.kind.to_owned(), event.data.to_owned())),
        Ok(None) => {}
        Err(error) => return (events, Some(error)),
    }
    (events, None)
}

#[track_caller]
fn check(body: &[u8], expect: &[(&str, &str)], error: Option<SseError>) {
    let expect: Owned = expect
        .iter()
        .map(|(kind, data)| ((*kind).to_owned(), (*data).to_owned()))
        .collect();
    every_split_agrees(body, SseLimits::default(), &(expect, error));
}

/// PRV-51: whole, one byte at a time, with empty chunks, and at every two-chunk split.
#[track_caller]
fn every_split_agrees(body: &[u8], limits: SseLimits, expect: &(Owned, Option<SseError>)) {
    assert_eq!(&decode(&[body], limits), expect, "whole");
    let bytes: Vec<&[u8]> = body.chunks(1).collect();
    assert_eq!(&decode(&bytes, limits), expect, "one byte at a time");
    for at in 0..=body.len() {
        let (left, right) = body.split_at(at);
        assert_eq!(&decode(&[left, &[], right], limits), expect, "cut at {at}");
    }
}

#[test]
fn comments_and_unknown_fields_are_no_events_prv_s1() {
    check(
        b": OPENROUTER PROCESSING\n\n:\n\nid: 7\nretry: 3\nfoo\ndata: {}\n\n: end\n\n",
        &[("", "{}")],
        None,
    );
}

#[test]
fn lines_end_at_cr_lf_and_both_prv_s2() {
    check(
        b"data: a\r\n\r\ndata: b\r\rdata: c\n\ndata: d\r\n\n",
        &[("", "a"), ("", "b"), ("", "c"), ("", "d")],
        None,
    );
}

#[test]
fn data_needs_no_space_and_lines_are_joined_prv_s3() {
    check(
        b"data:{\"a\":\ndata: 1}\n\ndata:  two spaces\n\nevent: ping\ndata: x\n\n",
        &[("", "{\"a\":\n1}"), ("", " two spaces"), ("ping", "x")],
        None,
    );
}

#[test]
fn unicode_separators_are_data_and_cut_characters_survive_prv_s4() {
    let body = "data: a\u{85}b\u{2028}c\u{2029}d\u{b}e\u{c}f 😀 漢字\n\n";
    check(
        body.as_bytes(),
        &[("", "a\u{85}b\u{2028}c\u{2029}d\u{b}e\u{c}f 😀 漢字")],
        None,
    );
}

#[test]
fn one_leading_byte_order_mark_is_dropped_prv_s5() {
    check(b"\xEF\xBB\xBFdata: a\n\n", &[("", "a")], None);
    // A second mark is data, here of the field's name, so that field is unknown.
    check(b"\xEF\xBB\xBF\xEF\xBB\xBFdata: a\n\n", &[], None);
    check("data: \u{feff}a\n\n".as_bytes(), &[("", "\u{feff}a")], None);
    check(b"\xEF\xBBdata: a\n\n", &[], Some(SseError::InvalidUtf8));
    check(b"\xEF\xBB", &[], None);
}

#[test]
fn an_invalid_byte_is_an_error_and_never_replaced_prv_s6() {
    check(
        b"data: ok\n\ndata: \"\xFF\"\n\ndata: late\n\n",
        &[("", "ok")],
        Some(SseError::InvalidUtf8),
    );
    check(b": \xFF\n", &[], Some(SseError::InvalidUtf8));
}

#[test]
fn an_undelimited_object_is_dispatched_at_a_clean_end_prv_s11() {
    check(b"data: {\"a\":1}", &[("", "{\"a\":1}")], None);
    check(
        b"event: x\r\ndata: {\"a\":1}\r",
        &[("x", "{\"a\":1}")],
        None,
    );
    check(b"data: [DONE]", &[("", "[DONE]")], None);
    check(b"data: {\"a\":1}\nda", &[("", "{\"a\":1}")], None);
}

#[test]
fn an_undelimited_fragment_is_dropped_prv_s12() {
    check(b"data: {\"a\":1", &[], None);
    check(b"data: \"text\"", &[], None);
    check(b"data: {} {}", &[], None);
    check(
        "data: {\"a\":\"é".as_bytes().split_last().unwrap().1,
        &[],
        None,
    );
    check(b"data: [DONE", &[], None);
}

#[test]
fn empty_data_is_not_dispatched_prv_58() {
    check(
        b"data:\n\ndata\n\nevent: a\n\ndata: x\n\n",
        &[("", "x")],
        None,
    );
    check(b"data:\ndata:\n\n", &[("", "\n")], None);
}

#[test]
fn the_event_bound_holds_at_its_edge_prv_60() {
    let limits = SseLimits {
        event_bytes: 20,
        body_bytes: 1000,
    };
    for (length, error) in [(13, None), (14, None), (15, Some(SseError::EventTooLarge))] {
        let text = "x".repeat(length);
        let body = format!("data: {text}\n\n");
        let events = if error.is_none() {
            vec![(String::new(), text)]
        } else {
            vec![]
        };
        every_split_agrees(body.as_bytes(), limits, &(events, error));
    }
    // Two lines count together, and a line without end is bounded too.
    every_split_agrees(
        b"data: 1234567890\ndata: 12345\n\n",
        limits,
        &(vec![], Some(SseError::EventTooLarge)),
    );
    every_split_agrees(
        b"xxxxxxxxxxxxxxxxxxxxx",
        limits,
        &(vec![], Some(SseError::EventTooLarge)),
    );
    // An over-long line that is not UTF-8 either gives one verdict, however it is cut.
    every_split_agrees(
        b"\xFFxxxxxxxxxxxxxxxxxxxxxxxxxx\n",
        limits,
        &(vec![], Some(SseError::EventTooLarge)),
    );
}

#[test]
fn the_body_bound_holds_at_its_edge_prv_60() {
    let body = b"data: a\n\ndata: b\n\n";
    for (limit, count, error) in [
        (body.len() + 1, 2, None),
        (body.len(), 2, None),
        (body.len() - 1, 1, Some(SseError::BodyTooLarge)),
        (9, 1, Some(SseError::BodyTooLarge)),
        (8, 0, Some(SseError::BodyTooLarge)),
    ] {
        let limits = SseLimits {
            event_bytes: 100,
            body_bytes: limit,
        };
        let events = [("", "a"), ("", "b")]
            .iter()
            .take(count)
            .map(|(kind, data)| ((*kind).to_owned(), (*data).to_owned()))
            .collect();
        every_split_agrees(body, limits, &(events, error));
    }
}

#[test]
fn an_error_stays() {
    let mut decoder = SseDecoder::default();
    let mut position = 0;
    assert!(decoder.next_event(b"\xFF\n", &mut position).is_err());
    assert!(decoder.next_event(b"data: a\n\n", &mut 0).is_err());
    assert!(decoder.finish().is_err());
}

/// A second, naive reading of PRV-58 to check the incremental one against.
fn oracle(body: &[u8]) -> (Owned, Option<SseError>) {
    let body = body.strip_prefix(&BYTE_ORDER_MARK[..]).unwrap_or(body);
    let mut lines: Vec<(Vec<u8>, bool)> = vec![(Vec::new(), false)];
    let mut bytes = body.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\r' | b'\n' => {
                if byte == b'\r' && bytes.peek() == Some(&b'\n') {
                    bytes.next();
                }
                lines.last_mut().unwrap().1 = true;
                lines.push((Vec::new(), false));
            }
            other => lines.last_mut().unwrap().0.push(other),
        }
    }
    let mut events = Vec::new();
    let (mut data, mut kind): (Option<String>, String) = (None, String::new());
    for (line, complete) in lines {
        let Ok(line) = String::from_utf8(line) else {
            return if complete {
                (events, Some(SseError::InvalidUtf8))
            } else {
                (events, None)
            };
        };
        if line.is_empty() && complete {
            if let Some(data) = data.take().filter(|data| !data.is_empty()) {
                events.push((kind.clone(), data));
            }
            kind.clear();
            continue;
        }
        match split_field(&line) {
            Field::Data(value) => match &mut data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => data = Some(value.to_owned()),
            },
            Field::Kind(value) => kind = value.to_owned(),
            Field::Ignored => {}
        }
    }
    if let Some(data) = data.filter(|data| is_self_delimiting(data)) {
        events.push((kind, data));
    }
    (events, None)
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_bytes_in_any_chunks_give_the_events_of_the_oracle_prv_51(
        pieces in proptest::collection::vec(proptest::sample::select(vec![
            b"data: ".to_vec(), b"data:".to_vec(), b"event: ping".to_vec(), b"\n".to_vec(), b"\r".to_vec(),
            b"\r\n".to_vec(), b"\n\n".to_vec(), b"{\"a\":1}".to_vec(), b"[DONE]".to_vec(), b":".to_vec(),
            "é😀".as_bytes().to_vec(), vec![0xFF], vec![0xEF, 0xBB, 0xBF], vec![0xEF], b" ".to_vec(),
            b"x".to_vec(), "\u{2028}".as_bytes().to_vec(), b"id: 3\n".to_vec(), b"{\"b\"".to_vec(),
        ]), 0..40),
        cuts in proptest::collection::vec(0usize..200, 0..12),
    ) {
        let body: Vec<u8> = pieces.concat();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(body.len())).collect();
        cuts.sort_unstable();
        let mut chunks = Vec::new();
        let mut from = 0;
        for cut in cuts {
            chunks.push(&body[from..cut]);
            from = cut;
        }
        chunks.push(&body[from..]);
        let expect = oracle(&body);
        proptest::prop_assert_eq!(decode(&chunks, SseLimits::default()), expect);
    }

    #[test]
    fn noise_never_panics(body in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..400)) {
        proptest::prop_assert_eq!(decode(&[&body], SseLimits::default()), oracle(&body));
    }
}
