//! Proof of names by TXT records (RFC 8555 §8.4), which a program of the operator publishes.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use instant_acme::KeyAuthorization;
use rustix::process::{Pid, Signal, kill_process_group};
use sendoff_config::DnsHook;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use crate::trouble::Trouble;

/// Time limit of one call of the program. It may wait until all name servers have the record.
const LIMIT: Duration = Duration::from_secs(5 * 60);

/// Time for the rest of the program's messages after its end, which a process that it has left
/// behind may hold open for ever.
const LEFT_BEHIND: Duration = Duration::from_secs(1);

/// The part of the program's messages that is kept, in bytes.
const MESSAGES: u64 = 1000;

/// A TXT record by which an authority checks a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TxtRecord {
    /// With a dot at its end.
    name: String,
    value: String,
}

impl TxtRecord {
    /// The record for a name. A wildcard has the record of its domain, with another value.
    pub(crate) fn new(name: &str, authorization: &KeyAuthorization) -> Self {
        let domain = name.strip_prefix("*.").unwrap_or(name);
        Self { name: format!("_acme-challenge.{domain}."), value: authorization.dns_value() }
    }
}

/// Publishes the records, one after the other, and waits for the name servers.
pub(crate) async fn publish(hook: &DnsHook, records: &[TxtRecord]) -> Result<(), Trouble> {
    for record in records {
        call(hook, "present", record).await?;
    }
    sleep(hook.wait).await;
    Ok(())
}

/// Removes the records. A failure is logged: the authority does not care.
pub(crate) async fn withdraw(hook: &DnsHook, records: &[TxtRecord]) {
    for record in records {
        if let Err(Trouble { says, .. }) = call(hook, "cleanup", record).await {
            tracing::warn!(name = record.name, "the TXT record stays: {says}");
        }
    }
}

/// Ends a program and the processes that it has started.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(leader) = self.0 {
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }
}

/// Calls the program as lego's provider `exec` does: `PROGRAM present|cleanup NAME VALUE`.
async fn call(hook: &DnsHook, action: &str, record: &TxtRecord) -> Result<(), Trouble> {
    let program = hook.program.display();
    let mut command = Command::new(&hook.program);
    command.args([action, &record.name, &record.value]).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| Trouble::here(&program.to_string(), error))?;
    // The id is free for other processes once the program has been waited for.
    let id = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    let mut group = Group(id);
    let (stderr, mut messages) = (child.stderr.take(), Vec::new());
    let (tell, told) = oneshot::channel();
    let waits = async {
        let ended = child.wait().await;
        let _ = tell.send(());
        ended
    };
    let reads = async {
        tokio::select! {
            () = read(stderr, &mut messages) => {}
            () = async { let _ = told.await; sleep(LEFT_BEHIND).await } => {}
        }
    };
    let ended = timeout(LIMIT, async { tokio::join!(waits, reads).0 }).await;
    if ended.is_ok() {
        group.0 = None;
    }
    let messages = String::from_utf8_lossy(&messages);
    let why = match ended {
        Ok(Ok(status)) if status.success() => {
            tracing::debug!(name = record.name, action, "{program} has ended: {messages}");
            return Ok(());
        }
        Ok(Ok(status)) => end(status),
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("still runs after {} s", LIMIT.as_secs()),
    };
    let what = format!("{program} {action} {}", record.name);
    Err(Trouble::here(&what, format_args!("{why}: {}", messages.trim())))
}

fn end(status: ExitStatus) -> String {
    match status.code() {
        Some(code) => format!("exit status {code}"),
        None => status.to_string(),
    }
}

/// Reads the beginning of the messages, and drops the rest.
async fn read(messages: Option<impl AsyncRead + Unpin>, into: &mut Vec<u8>) {
    let Some(mut messages) = messages else { return };
    let _ = (&mut messages).take(MESSAGES).read_to_end(into).await;
    let _ = tokio::io::copy(&mut messages, &mut tokio::io::sink()).await;
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn hook(script: &str) -> (tempfile::TempDir, DnsHook) {
        let folder = tempfile::tempdir().unwrap();
        let (text, program) = (folder.path().join("text"), folder.path().join("hook"));
        fs::write(&text, format!("#!/bin/sh\n{script}")).unwrap();
        // By another process: a file that this one has open for writing cannot be executed, and
        // another test may start a process with a copy of the descriptor at any time.
        let made = std::process::Command::new("install").args([&text, &program]).status();
        assert!(made.unwrap().success());
        (folder, DnsHook { program, wait: Duration::ZERO })
    }

    fn record(number: u8) -> TxtRecord {
        TxtRecord { name: "_acme-challenge.a.test.".to_owned(), value: format!("v{number}") }
    }

    #[tokio::test]
    async fn the_program_is_called_for_each_record() {
        let (folder, hook) = hook("echo \"$@\" >> \"$0.log\"");
        let records = [record(1), record(2)];
        publish(&hook, &records).await.unwrap();
        withdraw(&hook, &records).await;
        let calls = fs::read_to_string(folder.path().join("hook.log")).unwrap();
        let name = "_acme-challenge.a.test.";
        let expected = ["present", "cleanup"]
            .map(|action| format!("{action} {name} v1\n{action} {name} v2\n"));
        assert_eq!(calls, expected.concat());
    }

    #[tokio::test]
    async fn a_failure_of_the_program_is_told_in_its_words() {
        let (_folder, hook) = hook("echo 'no such zone' >&2; yes 1>&2 & exit 3");
        let said = publish(&hook, &[record(1)]).await.unwrap_err().says;
        assert!(
            said.contains("present _acme-challenge.a.test.: exit status 3: no such zone"),
            "{said}"
        );
        assert!(said.len() < 2000, "{}", said.len());
        let missing = DnsHook { program: "/nowhere/hook".into(), wait: Duration::ZERO };
        let said = publish(&missing, &[record(1)]).await.unwrap_err().says;
        assert_eq!(said, "/nowhere/hook: No such file or directory (os error 2)");
    }
}
