//! The difference between two configurations: the listeners and pools that stay.

use sendoff_config::{Config, Listener};

/// Returns an error if a running server cannot change from one configuration to the other.
pub(super) fn can_change(from: &Config, to: &Config) -> Result<(), String> {
    let what = if from.front.threads != to.front.threads {
        "the number of threads"
    } else if from.account != to.account {
        "the user"
    } else {
        return Ok(());
    };
    Err(format!("{what} cannot be changed without a restart"))
}

/// For each listener of `to`, the number of the listener in `from` with the same address, whose
/// sockets can stay.
pub(super) fn kept_listeners(from: &Config, to: &Config) -> Vec<Option<usize>> {
    let mut left: Vec<_> = from.listen.iter().enumerate().collect();
    let same = |listener: &Listener| {
        let at = left.iter().position(|(_, known)| known.address == listener.address)?;
        Some(left.swap_remove(at).0)
    };
    to.listen.iter().map(same).collect()
}

/// For each pool of `to`, the number of the same pool in `from`, whose workers can stay. Workers
/// that have booted an application are replaced, because its files may have changed.
pub(super) fn kept_pools(from: &Config, to: &Config, may_stay: bool) -> Vec<Option<usize>> {
    let same = |number: usize| {
        let mut known = (0..from.pools.len()).filter(|_| may_stay);
        known.find(|&known| {
            from.pools[known] == to.pools[number] && to.pools[number].worker.is_none()
        })
    };
    (0..to.pools.len()).map(same).collect()
}

/// Merges kept and new items, in the order of `sources`. Also returns the items that are not kept.
pub(super) fn merged<T>(
    sources: &[Option<usize>],
    before: Vec<T>,
    new: Vec<T>,
) -> (Vec<T>, Vec<T>) {
    let mut before: Vec<_> = before.into_iter().map(Some).collect();
    let mut new = new.into_iter();
    let one = |source: &Option<usize>| match source {
        Some(number) => before.get_mut(*number).and_then(Option::take),
        None => new.next(),
    };
    let all = sources.iter().filter_map(one).collect();
    (all, before.into_iter().flatten().collect())
}
