//! Tests of the runner itself: a script with a wrong expectation fails.

use super::{parser, runner};

const OPENING: &str = "# RFC 9293 §3.5: a handshake
listen
< S 0:0(0) win 1000 <mss 1000>
> S. 0:0(0) ack 1 <mss 1460>
+333334us < . 1:1(0) ack 1 win 1000
event accepted
";

/// Returns the result of the opening with `rest` after it.
fn outcome(rest: &str) -> Result<(), String> {
    let script = parser::parse("test", &format!("{OPENING}{rest}"))?;
    runner::run(&script).map_err(|failure| failure.to_string())
}

#[track_caller]
fn fails_with(rest: &str, words: &[&str]) {
    let failure = outcome(rest).unwrap_err();
    for word in words {
        assert!(failure.contains(word), "{word:?} is not in: {failure}");
    }
}

#[test]
fn what_holds_holds() {
    outcome(
        "send 5
        > P. 1:6(5) ack 1
        +333334us < P. 1:11(10) ack 6
        > . 6:6(0) ack 11
        read 10
        check state == ESTABLISHED && 333ms <= srtt <= 334ms && mss == 2 * 500 && dropped.BadAck == 0
        +10s nothing",
    )
    .unwrap();
}

#[test]
fn each_wrong_field_is_named() {
    let expect = |line: &str| format!("send 5\n{line}");
    for (line, difference) in [
        ("> F. 1:6(5) ack 1", "flags: expected F., came P."),
        ("> PE. 1:6(5) ack 1", "flags: expected PE., came P."),
        ("> P. 2:7(5) ack 1", "seq: expected 2, came 1"),
        ("> P. 1:5(4) ack 1", "octets: expected 4, came 5"),
        ("> P. 1:6(5) ack 2", "ack: expected 2, came 1"),
        ("> P. 1:6(5) ack 1 win 7", "win: expected 7, came"),
        ("> P. 1:6(5) ack 1 urg 1", "urg: expected 1, came 0"),
        ("> P. 1:6(5) ack 1 <mss 5>", "options: expected <mss 5>, came <>"),
        ("> P. 1:6(5) ack 1 <sack 1:2,...>", "options: expected <sack 1:2,...>, came <>"),
        ("> [ect0] P. 1:6(5) ack 1", "ECN bits of IP: expected 2, came 0"),
        ("> P. 1:6(5) ack 1 \"hello\"", "payload: expected \"hello\""),
        ("> P. 1:6(5) ack 1 fpdu", "fpdu: "),
    ] {
        fails_with(&expect(line), &["test:8: another segment came: P. 1:6(5) ack 1", difference, line]);
    }
}

#[test]
fn the_exchange_so_far_is_shown() {
    fails_with(
        "+2s send 5\n> P. 1:6(5) ack 7",
        &["0.0000 < S 0:0(0) win 1000 <mss 1000>", "0.0000 > S. 0:0(0) ack 1", "2.3333 > P. 1:6(5) ack 1"],
    );
}

#[test]
fn an_unexpected_segment_fails() {
    // At the end, before the next action, and before time passes.
    for rest in
        ["send 5", "send 5\nsend 5", "send 5\n+1s nothing", "send 5\nnothing", "send 5\n< . 1:1(0) ack 1"]
    {
        fails_with(rest, &["the core has sent what no line expects: 0.3333 > P. 1:6(5) ack 1"]);
    }
    // While time passes: the retransmission.
    fails_with("send 5\n> P. 1:6(5) ack 1\n+3s nothing", &["what no line expects: 1.3"]);
    fails_with("send 5\n> P. 1:6(5) ack 1\n+3s close", &["what no line expects: 1.3"]);
}

#[test]
fn a_missing_segment_fails() {
    fails_with("> . 1:1(0) ack 1", &["test:7: nothing came"]);
    fails_with("* > . 1:1(0) ack 1", &["nothing came"]);
}

#[test]
fn early_and_late_segments_fail() {
    let sent = "send 5\n> P. 1:6(5) ack 1\n";
    fails_with(&format!("{sent}+900ms > P. 1:6(5) ack 1"), &["too late"]);
    fails_with(&format!("{sent}+1.1s > P. 1:6(5) ack 1"), &["too early by 0.09"]);
    fails_with(&format!("{sent}+100ms~900ms > P. 1:6(5) ack 1"), &["too late"]);
    fails_with(&format!("{sent}+1100ms~2s > P. 1:6(5) ack 1"), &["too early"]);
    for line in ["+1s", "+500ms~1500ms", "*", "1.3333s"] {
        outcome(&format!("{sent}{line} > P. 1:6(5) ack 1")).unwrap();
    }
    fails_with("+1s nothing\n500ms nothing", &["that was 0.8333 s ago"]);
}

#[test]
fn events_octets_and_completions_are_judged() {
    fails_with("event closed finished", &["there is no event"]);
    fails_with("< R 1:1(0)", &["no line expects the event \"closed reset\""]);
    fails_with("< R 1:1(0)\nevent closed finished", &["the next event is \"closed reset\""]);
    let received = "< P. 1:4(3) ack 1 \"abc\"\n> . 1:1(0) ack 4\n";
    outcome(&format!("{received}read \"abc\"")).unwrap();
    fails_with(received, &["no line reads the last 3 octets"]);
    fails_with(&format!("{received}read 3"), &["3 octets were given up: \"abc\""]);
    fails_with(&format!("{received}read \"ab\""), &["3 octets were given up"]);
    let written = "operate\nwrite 8\n> P. 1:29(28) ack 1 fpdu\n";
    fails_with(&format!("{written}completion ok"), &["no work request has completed"]);
    fails_with(&format!("{written}< . 1:1(0) ack 29"), &["no line expects the completion \"ok\""]);
    fails_with(&format!("{written}< . 1:1(0) ack 29\ncompletion flushed"), &["completed with ok"]);
    outcome(&format!("{written}< . 1:1(0) ack 29\ncompletion ok")).unwrap();
}

#[test]
fn placement_is_judged() {
    let placed = "operate\n< P. 1:41(40) ack 1 fpdu\n> . 1:1(0) ack 41\n";
    outcome(&format!("{placed}placed 1:41\nnot placed 41:81")).unwrap();
    fails_with(&format!("{placed}not placed 1:41"), &["placed: true"]);
    fails_with(&format!("{placed}placed 41:81"), &["placed: false"]);
}

#[test]
fn checks_are_judged() {
    fails_with("check state == CLOSED", &["that does not hold: state is"]);
    fails_with("check mss == 1000 && mss < 1000", &["that does not hold: mss is 1000, mss is 1000"]);
    fails_with("check mss", &["nothing is compared"]);
    fails_with("check nonsense == 1", &["nothing is called \"nonsense\""]);
    fails_with("check dropped.Nonsense == 1", &["nothing is dropped for"]);
    outcome("check 2 + 3 * 4 - 1 == 13 && 7 / 2 == 3 && 1 != 2 && 3 > 2 >= 2").unwrap();
}

#[test]
fn what_cannot_be_read_is_refused() {
    for (line, words) in [
        ("dance", "there is no \"dance\""),
        ("> X 1:1(0)", "there is no flag 'X'"),
        ("> . 1:3(1) ack 1", "from 1 to 3 are not 1 octets"),
        ("> . 1:1(0)", "if and only if"),
        ("> P 1:1(0) ack 1", "if and only if"),
        ("< . 1:1(0) ack 1 <mss>", "the line ends too early"),
        ("< . 1:1(0) ack 1 <mss 1 2>", "says too much"),
        ("< . 1:1(0) ack 1 <trick 1>", "there is no option"),
        ("< . 1:1(0) ack 70000000000000000000", "is no number"),
        ("< . 1:4(3) ack 1 \"four\"", "has 4 octets, not 3"),
        ("+5 nothing", "is no time"),
        ("nothing more", "\"more\" is too much"),
        ("option mtu=9000", "options come before"),
        ("<2 . 1:1(0) ack 1", "there is no flow 2"),
    ] {
        fails_with(line, &["test:7: ", words]);
    }
}
