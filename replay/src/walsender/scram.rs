//! The server's side of SCRAM-SHA-256 (RFC 5802, RFC 7677; `auth-scram.c`), sans-IO.
//!
//! Only verifiers are kept, in PostgreSQL's own text (`pg_authid.rolpassword`): they prove a password without being one.
//! For a user that does not exist the whole exchange is played with a made-up salt, always the same for that name, so that
//! nobody learns who exists.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::{digest, hmac};

use super::error::Malformed;

/// The mechanism without channel binding.
pub const SCRAM_SHA_256: &str = "SCRAM-SHA-256";
/// The mechanism that is bound to the TLS channel.
pub const SCRAM_SHA_256_PLUS: &str = "SCRAM-SHA-256-PLUS";

/// Longest SCRAM message of a client (`PG_MAX_SASL_MESSAGE_LENGTH`, `sasl.h`).
pub const SCRAM_MESSAGE_BYTES_MAX: usize = 1024;
/// What PostgreSQL's `scram_iterations` may be at most here: it bounds the work that a client is asked for.
const ITERATIONS_MAX: u32 = 1_000_000;
/// `scram_iterations` unless it was changed; what a user that does not exist seems to have.
const ITERATIONS_DEFAULT: u32 = 4096;
/// Bytes of a salt as PostgreSQL makes it (`SCRAM_DEFAULT_SALT_LEN`).
const SALT_BYTES: usize = 16;
const KEY_BYTES: usize = 32;
/// What a client may be bound to.
const END_POINT_HEADER: &str = "p=tls-server-end-point,,";

/// What proves a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Verifier {
    iterations: u32,
    salt: Vec<u8>,
    stored_key: [u8; KEY_BYTES],
    server_key: [u8; KEY_BYTES],
}

impl Verifier {
    /// Of a new password, with a random salt; `SASLprep` is applied as PostgreSQL does.
    #[must_use]
    pub fn of_password(password: &str) -> Self {
        let text = postgres_protocol::password::scram_sha_256(password.as_bytes());
        Self::parse(&text).expect("our own verifier")
    }

    /// Reads `SCRAM-SHA-256$ITERATIONS:SALT$STORED:SERVER` (`parse_scram_secret`). `None` for anything else, such as a
    /// password or an MD5 hash.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.strip_prefix("SCRAM-SHA-256$")?.split('$');
        let (iterations, salt) = parts.next()?.split_once(':')?;
        let (stored, server) = parts.next()?.split_once(':')?;
        let iterations = iterations.parse().ok().filter(|count| (1..=ITERATIONS_MAX).contains(count))?;
        let salt = BASE64.decode(salt).ok().filter(|salt| !salt.is_empty())?;
        let key = |text: &str| BASE64.decode(text).ok()?.try_into().ok();
        let found = Self { iterations, salt, stored_key: key(stored)?, server_key: key(server)? };
        parts.next().is_none().then_some(found)
    }

    /// One that no password fits, for a user that does not exist.
    fn nobody(user: &str, secret: &[u8; KEY_BYTES]) -> Self {
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
        let derived: [u8; KEY_BYTES] = hmac::sign(&key, user.as_bytes()).as_ref().try_into().expect("32 bytes");
        // The stored key is a hash: nobody knows a client key whose hash it is.
        Self {
            iterations: ITERATIONS_DEFAULT,
            salt: derived[..SALT_BYTES].to_vec(),
            stored_key: derived,
            server_key: derived,
        }
    }
}

impl std::fmt::Debug for Verifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Verifier").field("iterations", &self.iterations).finish_non_exhaustive()
    }
}

/// Why a client is not who it says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScramError {
    /// Not SCRAM.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// Somebody between us took our offer of channel binding out, or is at the other end of the TLS channel.
    #[error("channel binding does not hold")]
    Binding,
    /// No such user, or a wrong password: the same for both.
    #[error("no such user, or a wrong password")]
    WrongPassword,
}

/// One exchange. Its two steps consume it, so that none can be skipped or repeated.
#[derive(Debug)]
pub struct Exchange {
    verifier: Verifier,
    known: bool,
    /// Digest that a client can be bound to, where there is one; then PLUS was offered.
    end_point: Option<Vec<u8>>,
    nonce: String,
}

/// After the challenge.
#[derive(Debug)]
pub struct Challenged {
    verifier: Verifier,
    known: bool,
    /// What `c=` must hold.
    binding: Vec<u8>,
    nonce: String,
    /// `client-first-message-bare,server-first-message`.
    spoken: String,
}

impl Exchange {
    /// Begins for `user`. `secret` is random, the same for the server's life; `nonce` is random, for this exchange only.
    #[must_use]
    pub fn new(
        user: &str,
        verifier: Option<&Verifier>,
        end_point: Option<&[u8]>,
        secret: &[u8; KEY_BYTES],
        nonce: [u8; 18],
    ) -> Self {
        Self {
            verifier: verifier.cloned().unwrap_or_else(|| Verifier::nobody(user, secret)),
            known: verifier.is_some(),
            end_point: end_point.map(<[u8]>::to_vec),
            nonce: BASE64.encode(nonce),
        }
    }

    /// The mechanisms to offer, the preferred one first.
    #[must_use]
    pub fn mechanisms(&self) -> &'static [&'static str] {
        if self.end_point.is_some() { &[SCRAM_SHA_256_PLUS, SCRAM_SHA_256] } else { &[SCRAM_SHA_256] }
    }

    /// Takes the client's first message, gives the challenge.
    ///
    /// # Errors
    /// [`ScramError::Malformed`]; [`ScramError::Binding`] for a client that thinks we cannot bind although we offered it.
    pub fn challenge(self, mechanism: &str, message: &[u8]) -> Result<(Challenged, String), ScramError> {
        let wrong = |expected: &str, found: &str| Malformed::new("SCRAM's first message", expected, found);
        let text = scram_text(message)?;
        let header = gs2_header(text).ok_or_else(|| wrong("a channel binding flag and no other identity", text))?;
        let plus = match mechanism {
            SCRAM_SHA_256_PLUS if self.end_point.is_some() => true,
            SCRAM_SHA_256 => false,
            other => return Err(wrong("a mechanism that was offered", other).into()),
        };
        match (header, plus) {
            (END_POINT_HEADER, true) | ("n,,", false) => {}
            ("y,,", false) if self.end_point.is_none() => {}
            ("y,,", false) => return Err(ScramError::Binding),
            _ => return Err(wrong("a channel binding flag that fits the mechanism", header).into()),
        }
        let bare = &text[header.len()..];
        let mut attributes = bare.split(',');
        // The user stands in the startup packet; what is here is not read (`read_client_first_message`).
        attributes.next().filter(|name| name.starts_with("n=")).ok_or_else(|| wrong("n=", bare))?;
        let theirs = attributes.next().and_then(|attribute| attribute.strip_prefix("r="));
        let theirs = theirs.filter(|nonce| is_printable(nonce)).ok_or_else(|| wrong("r=", bare))?;
        let nonce = format!("{theirs}{}", self.nonce);
        let salt = BASE64.encode(&self.verifier.salt);
        let challenge = format!("r={nonce},s={salt},i={}", self.verifier.iterations);
        let mut binding = header.as_bytes().to_vec();
        if plus {
            binding.extend(self.end_point.as_deref().expect("PLUS was offered"));
        }
        let spoken = format!("{bare},{challenge}");
        Ok((Challenged { verifier: self.verifier, known: self.known, binding, nonce, spoken }, challenge))
    }
}

impl Challenged {
    /// Takes the client's proof, gives ours.
    ///
    /// # Errors
    /// See [`ScramError`].
    pub fn prove(self, message: &[u8]) -> Result<String, ScramError> {
        let wrong = |expected: &str, found: &str| Malformed::new("SCRAM's final message", expected, found);
        let text = scram_text(message)?;
        let (without_proof, proof) = text.rsplit_once(",p=").ok_or_else(|| wrong("p=", text))?;
        let mut attributes = without_proof.split(',');
        let bound = attributes.next().and_then(|attribute| attribute.strip_prefix("c="));
        let bound = bound.ok_or_else(|| wrong("c=", text))?;
        if BASE64.decode(bound).ok().as_deref() != Some(&self.binding) {
            return Err(ScramError::Binding);
        }
        if attributes.next().and_then(|attribute| attribute.strip_prefix("r=")) != Some(&self.nonce) {
            return Err(wrong("r= with both nonces", text).into());
        }
        let proof: [u8; KEY_BYTES] = BASE64
            .decode(proof)
            .ok()
            .and_then(|proof| proof.try_into().ok())
            .ok_or_else(|| wrong("a proof of 32 bytes", "another"))?;
        let spoken = format!("{},{without_proof}", self.spoken);
        let signature = sign(&self.verifier.stored_key, spoken.as_bytes());
        let mut client_key = proof;
        client_key.iter_mut().zip(signature).for_each(|(key, byte)| *key ^= byte);
        let hash = digest::digest(&digest::SHA256, &client_key);
        if !equal(hash.as_ref(), &self.verifier.stored_key) || !self.known {
            return Err(ScramError::WrongPassword);
        }
        Ok(format!("v={}", BASE64.encode(sign(&self.verifier.server_key, spoken.as_bytes()))))
    }
}

fn sign(key: &[u8], text: &[u8]) -> [u8; KEY_BYTES] {
    let signed = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text);
    signed.as_ref().try_into().expect("SHA-256 gives 32 bytes")
}

/// Compares without telling by its time where they differ.
fn equal(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |seen, (one, other)| seen | (one ^ other)) == 0
}

fn scram_text(message: &[u8]) -> Result<&str, Malformed> {
    if message.len() > SCRAM_MESSAGE_BYTES_MAX {
        let expected = format!("at most {SCRAM_MESSAGE_BYTES_MAX} bytes");
        return Err(Malformed::new("a SCRAM message", expected, message.len()));
    }
    let text = std::str::from_utf8(message).ok().filter(|text| !text.contains('\0'));
    text.ok_or_else(|| Malformed::new("a SCRAM message", "text", "other bytes"))
}

/// The GS2 header: a flag and two commas, since no other identity may be taken.
fn gs2_header(text: &str) -> Option<&str> {
    let end = text.find(",,")? + 2;
    let header = &text[..end];
    (header[..end - 2].find(',').is_none()).then_some(header)
}

fn is_printable(nonce: &str) -> bool {
    !nonce.is_empty() && nonce.bytes().all(|byte| (0x21..0x7F).contains(&byte) && byte != b',')
}

#[cfg(test)]
mod tests {
    use postgres_protocol::authentication::sasl::{ChannelBinding, ScramSha256};

    use super::*;

    const SECRET: [u8; KEY_BYTES] = [7; KEY_BYTES];
    const END_POINT: &[u8] = &[9; 32];

    fn verifier() -> Verifier {
        Verifier::of_password("open sesame")
    }

    fn exchange(user: &str, verifier: Option<&Verifier>, end_point: Option<&[u8]>) -> Exchange {
        Exchange::new(user, verifier, end_point, &SECRET, [3; 18])
    }

    /// Plays the client of `postgres-protocol` against us.
    fn play(
        password: &str,
        ours: Exchange,
        mechanism: &str,
        binding: ChannelBinding,
    ) -> Result<Result<(), String>, ScramError> {
        let mut client = ScramSha256::new(password.as_bytes(), binding);
        let (challenged, challenge) = ours.challenge(mechanism, client.message())?;
        client.update(challenge.as_bytes()).expect("a challenge");
        let proof = challenged.prove(client.message())?;
        Ok(client.finish(proof.as_bytes()).map_err(|error| error.to_string()))
    }

    #[test]
    fn a_client_with_the_password_is_let_in_and_believes_us() {
        let verifier = verifier();
        let plain = exchange("ann", Some(&verifier), None);
        assert_eq!(play("open sesame", plain, SCRAM_SHA_256, ChannelBinding::unsupported()), Ok(Ok(())));
        let unbound = exchange("ann", Some(&verifier), None);
        assert_eq!(play("open sesame", unbound, SCRAM_SHA_256, ChannelBinding::unrequested()), Ok(Ok(())));
        let bound = exchange("ann", Some(&verifier), Some(END_POINT));
        assert_eq!(bound.mechanisms(), [SCRAM_SHA_256_PLUS, SCRAM_SHA_256]);
        let binding = ChannelBinding::tls_server_end_point(END_POINT.to_vec());
        assert_eq!(play("open sesame", bound, SCRAM_SHA_256_PLUS, binding), Ok(Ok(())));
        // A client without channel binding, though we could.
        let able = exchange("ann", Some(&verifier), Some(END_POINT));
        assert_eq!(play("open sesame", able, SCRAM_SHA_256, ChannelBinding::unsupported()), Ok(Ok(())));
    }

    #[test]
    fn a_wrong_password_and_an_unknown_user_look_alike() {
        let verifier = verifier();
        let wrong = exchange("ann", Some(&verifier), None);
        let unknown = exchange("bob", None, None);
        for ours in [wrong, unknown] {
            let outcome = play("open simsim", ours, SCRAM_SHA_256, ChannelBinding::unsupported());
            assert_eq!(outcome, Err(ScramError::WrongPassword));
        }
        let challenge =
            |user: &str| exchange(user, None, None).challenge(SCRAM_SHA_256, b"n,,n=,r=abc").expect("read").1;
        assert_eq!(challenge("bob"), challenge("bob"), "a salt that changes would tell that nobody has it");
        assert_ne!(challenge("bob"), challenge("eve"));
    }

    #[test]
    fn a_middleman_is_noticed_by_the_binding() {
        let verifier = verifier();
        let other_end = ChannelBinding::tls_server_end_point(vec![8; 32]);
        let ours = exchange("ann", Some(&verifier), Some(END_POINT));
        assert_eq!(play("open sesame", ours, SCRAM_SHA_256_PLUS, other_end), Err(ScramError::Binding));
        // Who could bind but was not offered it says so; we did offer it.
        let ours = exchange("ann", Some(&verifier), Some(END_POINT));
        let downgraded = play("open sesame", ours, SCRAM_SHA_256, ChannelBinding::unrequested());
        assert_eq!(downgraded, Err(ScramError::Binding));
    }

    #[test]
    fn verifiers_are_read_as_postgresql_writes_them() {
        // From RFC 7677: user "user", password "pencil".
        let text = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";
        let verifier = Verifier::parse(text).expect("a verifier");
        let outcome =
            play("pencil", exchange("user", Some(&verifier), None), SCRAM_SHA_256, ChannelBinding::unsupported());
        assert_eq!(outcome, Ok(Ok(())));
        assert_eq!(format!("{verifier:?}"), "Verifier { iterations: 4096, .. }");
        for cut in 0..text.len() {
            assert_eq!(Verifier::parse(&text[..cut]), None, "cut at {cut}");
        }
        for wrong in ["pencil", "md5aaaa", "SCRAM-SHA-256$0:QQ==$QQ==:QQ==", "SCRAM-SHA-256$9999999:QQ==$QQ==:QQ=="] {
            assert_eq!(Verifier::parse(wrong), None, "{wrong}");
        }
        assert_eq!(Verifier::parse(&format!("{text}$more")), None);
    }

    #[test]
    fn first_messages_that_are_none_are_refused() {
        let verifier = verifier();
        for (mechanism, message) in [
            (SCRAM_SHA_256, &b""[..]),
            (SCRAM_SHA_256, b"n,"),
            (SCRAM_SHA_256, b"n,a=admin,n=,r=x"),
            (SCRAM_SHA_256, b"n,,m=x,n=,r=x"),
            (SCRAM_SHA_256, b"n,,n="),
            (SCRAM_SHA_256, b"n,,n=,r="),
            (SCRAM_SHA_256, b"n,,n=,r=\x01"),
            (SCRAM_SHA_256, b"p=tls-unique,,n=,r=x"),
            (SCRAM_SHA_256_PLUS, b"p=tls-unique,,n=,r=x"),
            (SCRAM_SHA_256_PLUS, b"n,,n=,r=x"),
            (SCRAM_SHA_256, &[b'n'; 1025]),
            (SCRAM_SHA_256, b"n,,n=,r=\xff"),
            ("OAUTHBEARER", b"n,,"),
        ] {
            let ours = exchange("ann", Some(&verifier), Some(END_POINT));
            assert!(matches!(ours.challenge(mechanism, message), Err(ScramError::Malformed(_))), "{message:?}");
        }
        let without = exchange("ann", Some(&verifier), None);
        assert!(without.challenge(SCRAM_SHA_256_PLUS, b"p=tls-server-end-point,,n=,r=x").is_err(), "not offered");
    }

    #[test]
    fn no_shortened_or_flipped_final_message_is_let_in() {
        let verifier = verifier();
        let mut client = ScramSha256::new(b"open sesame", ChannelBinding::unsupported());
        let first = client.message().to_vec();
        let challenged = || exchange("ann", Some(&verifier), None).challenge(SCRAM_SHA_256, &first).expect("read");
        client.update(challenged().1.as_bytes()).expect("a challenge");
        let last = client.message().to_vec();
        assert!(challenged().0.prove(&last).is_ok());
        for cut in 0..last.len() {
            assert!(challenged().0.prove(&last[..cut]).is_err(), "cut at {cut}");
        }
        for index in 0..last.len() {
            for bit in 0..8 {
                let mut flipped = last.clone();
                flipped[index] ^= 1 << bit;
                // The last bits before base64's padding carry nothing; a strict decoder refuses them all the same.
                assert!(challenged().0.prove(&flipped).is_err(), "{index}.{bit}");
            }
        }
        for index in 0..first.len() {
            let mut flipped = first.clone();
            flipped[index] ^= 1;
            let _ = exchange("ann", Some(&verifier), None).challenge(SCRAM_SHA_256, &flipped);
        }
    }
}
