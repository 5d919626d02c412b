//! What clients of the walsender send, before and after anybody knows who they are.

use std::sync::LazyLock;

use bytes::BytesMut;
use replay::timeline::TimelineHistory;
use replay::walsender::{
    ClientMessage, Command, Exchange, SlotName, StandbyMessage, Startup, StartupRequest, Verifier,
    sasl_initial_response,
};
use segments::TimelineId;

use super::memory::within;
use super::targets::{FIXED_BYTES, Target, split};

/// One target for all of it: the first byte of an input says where in a conversation its bytes stand.
pub const TARGETS: &[Target] = &[("walsender", walsender)];

const VERIFIER: &str = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:\
                        wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";
static KNOWN: LazyLock<Verifier> = LazyLock::new(|| Verifier::parse(VERIFIER).expect("a verifier"));
/// What a client can be bound to.
const END_POINT: &[u8] = &[9; 32];

/// Any bytes of a client.
pub fn walsender(data: &[u8]) {
    let Some((mode, bytes)) = split(data) else { return };
    LazyLock::force(&KNOWN);
    within(FIXED_BYTES + 16 * bytes.len(), || match mode % 8 {
        0 => startup(&bytes),
        1 => message(&bytes),
        2 => drop(StandbyMessage::parse(&bytes)),
        3 => command(&bytes),
        4 => first_proof(mode, &bytes),
        5 => last_proof(&bytes),
        6 => drop(Verifier::parse(&String::from_utf8_lossy(&bytes))),
        _ => history(&bytes),
    });
}

fn startup(bytes: &[u8]) {
    if let Ok(Startup::Complete(request, used)) = Startup::parse(bytes) {
        assert!((8..=bytes.len()).contains(&used), "a packet lies in the bytes that came");
        assert_eq!(Startup::parse(&bytes[..used - 1]), Ok(Startup::Incomplete), "it needs its last byte");
        if let StartupRequest::Session(session) = request {
            assert!(!session.user.is_empty());
            assert!(session.application_name.bytes().all(|byte| (32..127).contains(&byte)));
        }
    }
}

/// A frame, as it is cut by its length.
fn message(bytes: &[u8]) {
    let Some((tag, body)) = bytes.split_first() else { return };
    let mut frame = BytesMut::from(&[*tag][..]);
    frame.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
    frame.extend_from_slice(body);
    match ClientMessage::parse(frame) {
        Ok(ClientMessage::Query(text)) => drop(Command::parse(&text)),
        Ok(ClientMessage::CopyData(body)) => drop(StandbyMessage::parse(&body)),
        Ok(ClientMessage::Password(body)) => drop(sasl_initial_response(&body)),
        _ => {}
    }
}

fn command(bytes: &[u8]) {
    match Command::parse(&String::from_utf8_lossy(bytes)) {
        Ok(Command::Show(name)) => assert!(name.contains('.') || name.len() <= 63),
        Ok(Command::CreateSlot { slot, .. } | Command::DropSlot { slot, .. }) => {
            assert!(slot.len() <= 63, "identifiers are cut");
            drop(SlotName::new(&slot));
        }
        Ok(Command::Start { timeline, .. }) => assert!(timeline.is_none_or(|timeline| timeline.get() > 0)),
        _ => {}
    }
}

fn exchange(end_point: Option<&[u8]>) -> Exchange {
    Exchange::new("user", Some(&KNOWN), end_point, &[7; 32], [3; 18])
}

fn first_proof(mode: u8, bytes: &[u8]) {
    if let Ok((mechanism, message)) = sasl_initial_response(bytes) {
        let ours = exchange((mode & 8 == 8).then_some(END_POINT));
        if let Ok((challenged, challenge)) = ours.challenge(mechanism, message) {
            assert!(challenge.starts_with("r="));
            assert!(challenged.prove(message).is_err(), "nobody gets in without the password");
        }
    }
}

fn last_proof(bytes: &[u8]) {
    let (challenged, _) = exchange(None).challenge("SCRAM-SHA-256", b"n,,n=,r=abc").expect("a first message");
    assert!(challenged.prove(bytes).is_err(), "nobody gets in without the password");
}

fn history(bytes: &[u8]) {
    if let Ok(history) = TimelineHistory::parse(TimelineId::new(9), bytes) {
        let ancestors = history.ancestors();
        assert!(ancestors.windows(2).all(|pair| pair[0].timeline < pair[1].timeline && pair[0].end <= pair[1].end));
        for ancestor in ancestors {
            assert!(history.after(ancestor.timeline).is_some());
        }
    }
}
