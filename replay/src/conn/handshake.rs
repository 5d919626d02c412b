//! Startup and authentication as a state machine: messages in, bytes to send out (sans-IO).
//!
//! Which methods are admitted is what libpq admits without `require_auth`: SCRAM-SHA-256 with and without channel
//! binding, MD5, and a clear-text password, also without TLS. Whoever wants the password protected says
//! `sslmode=verify-full` or `channel_binding=require`. SCRAM proves the server as well: AuthenticationOk before that proof
//! is refused.

use std::collections::BTreeMap;

use bytes::BytesMut;
use fallible_iterator::FallibleIterator;
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{self, ScramSha256};
use postgres_protocol::message::backend::{AuthenticationSaslBody, Message};
use postgres_protocol::message::frontend;

use super::conninfo::ChannelBinding;
use super::error::Violation;
use super::message::{self, ServerError};
use super::secret::Secret;

/// Most ParameterStatus messages that are kept; PostgreSQL reports about fifteen.
const PARAMETERS_COUNT_MAX: usize = 256;

/// What came of one message.
#[derive(Debug)]
pub(crate) enum Step {
    /// Nothing to do; read on.
    Wait,
    /// Send this, then read on.
    Send(BytesMut),
    /// The session is open.
    Ready(Greeting),
}

/// What the server told about itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Greeting {
    pub(crate) parameters: BTreeMap<String, String>,
    pub(crate) process_id: i32,
}

/// Why the handshake cannot go on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Proof is missing, on either side.
    Proof(String),
    /// The server's error.
    Server(Box<ServerError>),
    /// Not the protocol.
    Violation(Violation),
}

impl From<Violation> for Refusal {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

enum State {
    /// The server says how it wants to be convinced.
    Request,
    SaslContinue(ScramSha256),
    SaslFinal(ScramSha256),
    /// Only AuthenticationOk may come.
    Ok,
    /// Parameters and key until ReadyForQuery.
    Greeting(Greeting),
    /// Ended, well or not.
    Over,
}

/// The client's side of startup, after the startup message was sent.
pub(crate) struct Handshake {
    user: String,
    password: Option<Secret>,
    channel_binding: ChannelBinding,
    tls_server_end_point: Option<Vec<u8>>,
    state: State,
}

impl Handshake {
    pub(crate) fn new(
        user: &str,
        password: Option<Secret>,
        channel_binding: ChannelBinding,
        tls_server_end_point: Option<&[u8]>,
    ) -> Self {
        Self {
            user: user.to_owned(),
            password,
            channel_binding,
            tls_server_end_point: tls_server_end_point.map(<[u8]>::to_vec),
            state: State::Request,
        }
    }

    /// Takes one message of the server. Notices are the caller's business and never come here.
    pub(crate) fn step(&mut self, message: Message) -> Result<Step, Refusal> {
        if let Message::ErrorResponse(body) = &message {
            self.state = State::Over;
            return Err(Refusal::Server(Box::new(ServerError::parse(body.fields())?)));
        }
        match std::mem::replace(&mut self.state, State::Over) {
            State::Request => self.answer_request(message),
            State::SaslContinue(scram) => self.prove(scram, &message),
            State::SaslFinal(scram) => self.check_proof(scram, &message),
            State::Ok => match message {
                Message::AuthenticationOk => Ok(self.go_on(State::Greeting(Greeting::default()), Step::Wait)),
                other => Err(unexpected("authentication", "AuthenticationOk", &other)),
            },
            State::Greeting(greeting) => self.greet(greeting, message),
            State::Over => Err(Violation::new("startup", "nothing more", message::describe(&message)).into()),
        }
    }

    fn go_on(&mut self, state: State, step: Step) -> Step {
        self.state = state;
        step
    }

    fn answer_request(&mut self, message: Message) -> Result<Step, Refusal> {
        match message {
            Message::AuthenticationSasl(body) => self.begin_sasl(&body),
            Message::AuthenticationOk => {
                self.refuse_unbound("the server asked for no proof at all")?;
                Ok(self.go_on(State::Greeting(Greeting::default()), Step::Wait))
            }
            Message::AuthenticationCleartextPassword => {
                self.refuse_unbound("the server asks for the password itself")?;
                let password = self.password()?;
                let answer = packet(|buffer| frontend::password_message(password.expose().as_bytes(), buffer))?;
                Ok(self.go_on(State::Ok, Step::Send(answer)))
            }
            Message::AuthenticationMd5Password(body) => {
                self.refuse_unbound("the server asks for MD5")?;
                let password = self.password()?;
                let hash = md5_hash(self.user.as_bytes(), password.expose().as_bytes(), body.salt());
                let answer = packet(|buffer| frontend::password_message(hash.as_bytes(), buffer))?;
                Ok(self.go_on(State::Ok, Step::Send(answer)))
            }
            Message::AuthenticationGss | Message::AuthenticationSspi | Message::AuthenticationKerberosV5 => {
                let text = "the server asks for GSSAPI, SSPI or Kerberos, which walspool does not support; \
                            let pg_hba.conf ask this role for scram-sha-256 or cert";
                Err(Refusal::Proof(text.to_owned()))
            }
            other => Err(unexpected("startup", "an authentication request", &other)),
        }
    }

    fn begin_sasl(&mut self, body: &AuthenticationSaslBody) -> Result<Step, Refusal> {
        let wrong = |error: std::io::Error| Violation::new("AuthenticationSASL", "mechanisms", error.to_string());
        let (mut plain, mut plus) = (false, false);
        let mut mechanisms = body.mechanisms();
        while let Some(mechanism) = mechanisms.next().map_err(wrong)? {
            plain |= mechanism == sasl::SCRAM_SHA_256;
            plus |= mechanism == sasl::SCRAM_SHA_256_PLUS;
        }
        if !plain && !plus {
            return Err(Refusal::Proof("the server offers no SCRAM-SHA-256; OAuth is not supported".to_owned()));
        }
        let end_point = self.tls_server_end_point.take().filter(|_| self.channel_binding != ChannelBinding::Disable);
        let (mechanism, binding) = match end_point {
            Some(end_point) if plus => {
                (sasl::SCRAM_SHA_256_PLUS, sasl::ChannelBinding::tls_server_end_point(end_point))
            }
            // We could bind, the server seems not to: said so, it notices if somebody took its offer out.
            Some(_) => (sasl::SCRAM_SHA_256, sasl::ChannelBinding::unrequested()),
            None => (sasl::SCRAM_SHA_256, sasl::ChannelBinding::unsupported()),
        };
        if mechanism == sasl::SCRAM_SHA_256 {
            let why = if plus { "this connection has nothing to bind to" } else { "the server does not offer it" };
            self.refuse_unbound(why)?;
        }
        let password = self.password()?;
        let scram = ScramSha256::new(password.expose().as_bytes(), binding);
        let answer = packet(|buffer| frontend::sasl_initial_response(mechanism, scram.message(), buffer))?;
        Ok(self.go_on(State::SaslContinue(scram), Step::Send(answer)))
    }

    fn prove(&mut self, mut scram: ScramSha256, message: &Message) -> Result<Step, Refusal> {
        let Message::AuthenticationSaslContinue(body) = message else {
            return Err(unexpected("SCRAM", "AuthenticationSASLContinue", message));
        };
        scram.update(body.data()).map_err(|error| Refusal::Proof(format!("the server's SCRAM challenge: {error}")))?;
        let answer = packet(|buffer| frontend::sasl_response(scram.message(), buffer))?;
        Ok(self.go_on(State::SaslFinal(scram), Step::Send(answer)))
    }

    fn check_proof(&mut self, mut scram: ScramSha256, message: &Message) -> Result<Step, Refusal> {
        let Message::AuthenticationSaslFinal(body) = message else {
            return Err(unexpected("SCRAM", "AuthenticationSASLFinal", message));
        };
        scram.finish(body.data()).map_err(|error| {
            Refusal::Proof(format!("the server did not prove that it knows the password ({error})"))
        })?;
        Ok(self.go_on(State::Ok, Step::Wait))
    }

    fn greet(&mut self, mut greeting: Greeting, message: Message) -> Result<Step, Refusal> {
        let wrong = |error: std::io::Error| Violation::new("ParameterStatus", "UTF-8 text", error.to_string());
        match message {
            Message::ParameterStatus(body) => {
                if greeting.parameters.len() >= PARAMETERS_COUNT_MAX {
                    let expected = format!("at most {PARAMETERS_COUNT_MAX} parameters");
                    return Err(Violation::new("startup", expected, "more").into());
                }
                let name = body.name().map_err(wrong)?.to_owned();
                greeting.parameters.insert(name, body.value().map_err(wrong)?.to_owned());
            }
            Message::BackendKeyData(body) => greeting.process_id = body.process_id(),
            Message::ReadyForQuery(_) => return Ok(Step::Ready(greeting)),
            other => return Err(unexpected("startup", "parameters or ReadyForQuery", &other)),
        }
        Ok(self.go_on(State::Greeting(greeting), Step::Wait))
    }

    fn password(&self) -> Result<Secret, Refusal> {
        let missing =
            || Refusal::Proof("the server asks for a password and none is set (password or passfile)".to_owned());
        self.password.clone().ok_or_else(missing)
    }

    fn refuse_unbound(&self, why: &str) -> Result<(), Refusal> {
        match self.channel_binding {
            ChannelBinding::Require => Err(Refusal::Proof(format!("channel_binding=require cannot be met: {why}"))),
            ChannelBinding::Disable | ChannelBinding::Prefer => Ok(()),
        }
    }
}

fn unexpected(place: &'static str, expected: &str, found: &Message) -> Refusal {
    Violation::new(place, expected, message::describe(found)).into()
}

/// Builds a message; what cannot be encoded is a password with a zero byte.
fn packet(build: impl FnOnce(&mut BytesMut) -> std::io::Result<()>) -> Result<BytesMut, Refusal> {
    let mut buffer = BytesMut::new();
    build(&mut buffer).map_err(|error| Refusal::Proof(format!("the answer cannot be sent: {error}")))?;
    Ok(buffer)
}

#[cfg(test)]
mod tests {
    use super::super::message::{Backend, HEADER_BYTES, parse};
    use super::*;

    const SASL_BOTH: &[u8] = b"\0\0\0\x0aSCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0";
    const SASL_PLAIN: &[u8] = b"\0\0\0\x0aSCRAM-SHA-256\0\0";
    const OK: &[u8] = &[0, 0, 0, 0];
    const CLEARTEXT: &[u8] = &[0, 0, 0, 3];
    const MD5: &[u8] = &[0, 0, 0, 5, 1, 2, 3, 4];

    fn message(tag: u8, body: &[u8]) -> Message {
        let mut bytes = BytesMut::from(&[tag][..]);
        bytes.extend((body.len() as u32 + 4).to_be_bytes());
        bytes.extend(body);
        match parse(bytes) {
            Ok(Backend::Common(message)) => message,
            _ => panic!("sample cannot be read"),
        }
    }

    fn handshake(binding: ChannelBinding, end_point: Option<&[u8]>) -> Handshake {
        Handshake::new("ann", Some(Secret::new("open sesame")), binding, end_point)
    }

    fn sent(step: Result<Step, Refusal>) -> String {
        match step {
            Ok(Step::Send(bytes)) => String::from_utf8_lossy(&bytes[HEADER_BYTES..]).into_owned(),
            other => panic!("{other:?}"),
        }
    }

    fn proof_missing(step: Result<Step, Refusal>) -> String {
        match step {
            Err(Refusal::Proof(reason)) => reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn trust_goes_straight_to_the_greeting() {
        let mut handshake = handshake(ChannelBinding::Prefer, None);
        assert!(matches!(handshake.step(message(b'R', OK)), Ok(Step::Wait)));
        assert!(matches!(handshake.step(message(b'S', b"server_version\x0018.6\0")), Ok(Step::Wait)));
        assert!(matches!(handshake.step(message(b'K', &[0, 0, 0, 9, 0, 0, 0, 1])), Ok(Step::Wait)));
        let Ok(Step::Ready(greeting)) = handshake.step(message(b'Z', b"I")) else { panic!("not ready") };
        assert_eq!(greeting.parameters["server_version"], "18.6");
        assert_eq!(greeting.process_id, 9);
    }

    #[test]
    fn md5_sends_a_hash_and_cleartext_the_password() {
        let hash = sent(handshake(ChannelBinding::Prefer, None).step(message(b'R', MD5)));
        assert!(hash.starts_with("md5") && !hash.contains("sesame"), "{hash}");
        let clear = sent(handshake(ChannelBinding::Prefer, None).step(message(b'R', CLEARTEXT)));
        assert_eq!(clear, "open sesame\0");
    }

    #[test]
    fn scram_binds_to_the_channel_where_both_can() {
        let end_point: &[u8] = &[1; 32];
        type Case<'a> = (&'a [u8], ChannelBinding, Option<&'a [u8]>, &'a str);
        let cases: [Case<'_>; 5] = [
            (SASL_BOTH, ChannelBinding::Prefer, Some(end_point), "p=tls-server-end-point,,"),
            (SASL_BOTH, ChannelBinding::Disable, Some(end_point), "n,,"),
            (SASL_BOTH, ChannelBinding::Prefer, None, "n,,"),
            (SASL_PLAIN, ChannelBinding::Prefer, Some(end_point), "y,,"),
            (SASL_BOTH, ChannelBinding::Require, Some(end_point), "p=tls-server-end-point,,"),
        ];
        for (offer, binding, end_point, expected) in cases {
            let first = sent(handshake(binding, end_point).step(message(b'R', offer)));
            assert!(first.contains(expected), "{binding:?}: {first:?}");
            let plus = first.starts_with("SCRAM-SHA-256-PLUS\0");
            assert_eq!(plus, expected.starts_with('p'), "{first:?}");
        }
    }

    #[test]
    fn channel_binding_required_admits_nothing_else() {
        for request in [OK, CLEARTEXT, MD5, SASL_PLAIN] {
            let reason = proof_missing(handshake(ChannelBinding::Require, Some(&[1; 32])).step(message(b'R', request)));
            assert!(reason.contains("channel_binding=require cannot be met"), "{reason}");
        }
        let reason = proof_missing(handshake(ChannelBinding::Require, None).step(message(b'R', SASL_BOTH)));
        assert!(reason.contains("nothing to bind to"), "{reason}");
    }

    #[test]
    fn a_server_that_skips_its_proof_is_refused() {
        let mut handshake = handshake(ChannelBinding::Prefer, None);
        let first = sent(handshake.step(message(b'R', SASL_PLAIN)));
        assert!(matches!(handshake.step(message(b'R', OK)), Err(Refusal::Violation(_))));
        // And after the challenge as well.
        let mut handshake = super::tests::handshake(ChannelBinding::Prefer, None);
        let again = sent(handshake.step(message(b'R', SASL_PLAIN)));
        assert_ne!(first, again, "the nonce repeats");
        let nonce = again.split("r=").nth(1).unwrap();
        let challenge = format!("\0\0\0\x0br={nonce}server,s=QQ==,i=4096");
        assert!(sent(handshake.step(message(b'R', challenge.as_bytes()))).contains("server,p="));
        assert!(matches!(handshake.step(message(b'R', OK)), Err(Refusal::Violation(_))));
    }

    #[test]
    fn a_server_with_a_wrong_proof_is_refused() {
        let mut handshake = handshake(ChannelBinding::Prefer, None);
        let first = sent(handshake.step(message(b'R', SASL_PLAIN)));
        let nonce = first.split("r=").nth(1).unwrap();
        sent(handshake.step(message(b'R', format!("\0\0\0\x0br={nonce}x,s=QQ==,i=4096").as_bytes())));
        let reason =
            proof_missing(handshake.step(message(b'R', b"\0\0\0\x0cv=QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE=")));
        assert!(reason.contains("did not prove"), "{reason}");
    }

    #[test]
    fn a_foreign_nonce_and_endless_iterations_are_refused() {
        for tail in ["r=foreign,s=QQ==,i=4096", "r={nonce}x,s=QQ==,i=4294967295", "r={nonce}x,s=!,i=1", "x"] {
            let mut handshake = handshake(ChannelBinding::Prefer, None);
            let first = sent(handshake.step(message(b'R', SASL_PLAIN)));
            let challenge = tail.replace("{nonce}", first.split("r=").nth(1).unwrap());
            let body = [b"\0\0\0\x0b", challenge.as_bytes()].concat();
            proof_missing(handshake.step(message(b'R', &body)));
        }
    }

    #[test]
    fn a_missing_password_and_foreign_methods_say_so() {
        let mut without = Handshake::new("ann", None, ChannelBinding::Prefer, None);
        assert!(proof_missing(without.step(message(b'R', SASL_PLAIN))).contains("none is set"));
        let gss = message(b'R', &[0, 0, 0, 7]);
        assert!(proof_missing(handshake(ChannelBinding::Prefer, None).step(gss)).contains("GSSAPI"));
        let oauth = message(b'R', b"\0\0\0\x0aOAUTHBEARER\0\0");
        assert!(proof_missing(handshake(ChannelBinding::Prefer, None).step(oauth)).contains("OAuth"));
    }

    #[test]
    fn what_does_not_belong_to_startup_is_a_violation_and_the_number_of_parameters_is_limited() {
        let step = handshake(ChannelBinding::Prefer, None).step(message(b'Z', b"I"));
        assert!(matches!(step, Err(Refusal::Violation(_))));
        let mut handshake = handshake(ChannelBinding::Prefer, None);
        handshake.step(message(b'R', OK)).unwrap();
        let mut refused = None;
        for number in 0..=PARAMETERS_COUNT_MAX {
            refused = handshake.step(message(b'S', format!("p{number}\0v\0").as_bytes())).err();
        }
        assert!(matches!(refused, Some(Refusal::Violation(_))));
        // Whatever ended it stays its end.
        assert!(matches!(handshake.step(message(b'Z', b"I")), Err(Refusal::Violation(_))));
    }
}
