//! The state of processes beside their CPU time: memory, temporary files, processes that wait.

use crate::cpu::Process;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;

/// Memory of all processes in KB, with shared pages divided among them.
pub(crate) fn memory_kb(processes: &[Process]) -> i64 {
    let mut sum = 0;
    for process in processes {
        // A process may end meanwhile.
        let text = fs::read_to_string(format!("/proc/{}/smaps_rollup", process.pid));
        let text = text.unwrap_or_default();
        let pss =
            text.lines().find_map(|line| line.strip_prefix("Pss:")?.split_whitespace().next());
        sum += pss.and_then(|kb| kb.parse::<i64>().ok()).unwrap_or(0);
    }
    sum
}

/// Size of the temporary files that the processes have open, each counted once.
pub(crate) fn temporary_bytes(processes: &[Process]) -> u64 {
    let mut sizes = BTreeMap::new();
    for process in processes {
        // A process may end meanwhile.
        let Ok(entries) = fs::read_dir(format!("/proc/{}/fd", process.pid)) else { continue };
        for path in entries.flatten().map(|entry| entry.path()) {
            let (Ok(target), Ok(file)) = (fs::read_link(&path), fs::metadata(&path)) else {
                continue;
            };
            // lighttpd's have names. Files in memory count as memory.
            let target = target.as_os_str().as_encoded_bytes();
            let temporary = file.nlink() == 0 || target.starts_with(b"/var/tmp/lighttpd-");
            if file.is_file() && temporary && !target.starts_with(b"/memfd:") {
                sizes.insert((file.dev(), file.ino()), file.blocks() * 512);
            }
        }
    }
    sizes.values().sum()
}

/// Number of processes that wait for a peer to take bytes; `None` if the kernel does not tell.
pub(crate) fn held(processes: &[Process]) -> Option<usize> {
    // write, poll (Apache writes without waiting, then polls), writev, sendfile, sendto, sendmsg,
    // splice: numbers of the calls on x86-64.
    const WRITING: [&str; 7] = ["1", "7", "20", "40", "44", "46", "275"];
    if cfg!(not(target_arch = "x86_64")) {
        return None;
    }
    let mut held = 0;
    for process in processes {
        let Ok(call) = fs::read_to_string(format!("/proc/{}/syscall", process.pid)) else {
            continue;
        };
        held += usize::from(call.split(' ').next().is_some_and(|number| WRITING.contains(&number)));
    }
    Some(held)
}
