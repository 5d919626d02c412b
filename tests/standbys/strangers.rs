//! By TCP: nobody without TLS and a password, and whoever tries disturbs nobody.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use setup::account::{give, server_account};
use setup::on_every_major;
use setup::port::ReservedPort;
use setup::process::run_to_end;
use setup::tls::Certificates;

use crate::support::{LATER, SOON};
use crate::wal::write_rows;
use crate::world::{Fed, Retention, equal};

on_every_major!(strangers_are_refused_and_disturb_nobody);

const STRANGERS: usize = 200;

async fn strangers_are_refused_and_disturb_nobody(major: u32) {
    let (port, certificates) = (ReservedPort::take().expect("port"), Certificates::generate(&["localhost"], "x"));
    let certificates = certificates.expect("certificates");
    let account = server_account().expect("account");
    give(certificates.folder(), account).expect("given");
    for file in [certificates.server_certificate(), certificates.server_key(), certificates.authority()] {
        give(&file, account).expect("given");
    }
    let walsender = format!(
        "listen = \"{}\"\ntls_certificate = {:?}\ntls_key = {:?}\nusers = [{{ name = \"standby\", password = \"se cret\" }}]",
        port.address(),
        certificates.server_certificate(),
        certificates.server_key(),
    );
    let mut fed = Fed::with(major, &walsender, Retention::Off).await;
    let mut standby = fed.standby("first", &[]);
    standby.start_again().await.expect("the standby starts");
    write_rows(&fed.world.source, 200, 20).await;
    equal(&fed.world.source, &standby).await;
    let streams = fed.standby_status("first", "it streams", |row| row["state"] == "streaming").await;

    let address = port.address();
    let flood = tokio::task::spawn_blocking(move || {
        let mut strangers: Vec<TcpStream> = Vec::new();
        for number in 0..STRANGERS {
            let mut stream = TcpStream::connect(&address).expect("the port is open");
            stream.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
            let said: &[u8] = match number % 4 {
                // Nothing at all; a page of a browser; a login without TLS; noise.
                0 => b"",
                1 => b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
                2 => b"\0\0\0\x14\0\x03\0\0user\0standby\0\0",
                _ => &[0xFF; 64],
            };
            // Who was turned away already may find the connection closed.
            let _ = stream.write_all(said);
            strangers.push(stream);
        }
        let answer = |stream: &mut TcpStream| {
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
            answer
        };
        // Those who say nothing are given up by the time limit of logins; nobody waits for it here.
        let talkers = strangers.iter_mut().enumerate().filter(|(number, _)| number % 4 != 0);
        let answers: Vec<Vec<u8>> = talkers.map(|(_, stream)| answer(stream)).collect();
        assert!(answers.iter().all(|answer| !answer.starts_with(b"R")), "nobody was let in");
        strangers
    });
    // Meanwhile the standby goes on, and so does capture.
    write_rows(&fed.world.source, 1500, 20).await;
    equal(&fed.world.source, &standby).await;
    let strangers = flood.await.expect("the flood ended");
    let refused = |status: &Value, kind: &str| status["walsender"]["refused"][kind].as_u64().unwrap_or(0);
    let counted = |status: &Value| {
        ["too_many", "not_the_protocol", "not_encrypted"].iter().map(|kind| refused(status, kind)).sum::<u64>() >= 150
    };
    fed.daemon.wait_for("refusals are counted", LATER, counted).await.expect("counted");
    drop(strangers);
    let lines = fed.world.launch.log_text().lines().filter(|line| line.contains("walsender was refused")).count();
    assert!((1..=40).contains(&lines), "{lines} lines for {STRANGERS} strangers");
    let now = fed.standby_status("first", "it still streams", |row| row["state"] == "streaming").await;
    assert_eq!(now["peer"], streams["peer"], "its connection never broke");

    // With the right password over TLS, bound to the channel, a receiver gets in; with a wrong one it does not.
    let receive = |password: &str, folder: &str| {
        let mut command = Command::new(fed.world.source.installation().program("pg_receivewal"));
        let to = fed.world.folder.path().join(folder);
        std::fs::create_dir(&to).expect("made");
        give(&to, account).expect("given");
        let proof = format!("sslmode=verify-full sslrootcert={}", certificates.authority().display());
        let host = format!("host=localhost port={} user=standby password='{password}' {proof}", port.number());
        let end = now["flush"].as_str().expect("told");
        command.arg("-D").arg(&to).args(["--no-loop", "--endpos", end, "-d", &host]).env("HOME", "/nonexistent");
        run_to_end(command, account).map(|_| std::fs::read_dir(&to).expect("listed").count())
    };
    // Its first file begins where the source's end was at its start, so it may be one file that fills.
    let wrong = receive("wrong", "wrong").expect_err("refused").to_string();
    assert!(wrong.contains("password authentication failed"), "{wrong}");
    assert!(receive("se cret", "right").expect("received") >= 1);
    fed.daemon
        .wait_for("the wrong password is counted", SOON, |status| refused(status, "wrong_password") >= 1)
        .await
        .expect("counted");
    assert!(!fed.world.launch.log_text().contains("se cret"), "the password is in the log");
    assert_eq!(fed.daemon.terminate(SOON).await.expect("ended"), Some(0));
}
