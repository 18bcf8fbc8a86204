//! Paths of pages about pools.

use sendoff_config::PoolConfig;

/// A page about a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolPage {
    /// The number of the pool.
    pub pool: usize,
    /// The kind of the page.
    pub kind: PoolPageKind,
}

/// The contents of a page about a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolPageKind {
    /// A fixed text.
    Ping,
    /// The state of the pool.
    Status,
}

impl PoolPage {
    /// The page about the pool with this number at a decoded path.
    pub(super) fn at(path: &[u8], number: usize, pools: &[PoolConfig]) -> Option<Self> {
        let pool = pools.get(number)?;
        let is_at = |page: &Option<String>| page.as_ref().is_some_and(|p| p.as_bytes() == path);
        let kind = if is_at(&pool.ping_path) {
            PoolPageKind::Ping
        } else if is_at(&pool.status_path) {
            PoolPageKind::Status
        } else {
            return None;
        };
        Some(Self { pool: number, kind })
    }
}

#[cfg(test)]
mod tests {
    use sendoff_config::Workers;

    use super::*;

    #[test]
    fn each_pool_has_its_own_pages() {
        let pool = PoolConfig::new("a", Workers::Fixed(1));
        let paths = |ping: &str, status: &str| PoolConfig {
            ping_path: Some(ping.to_owned()),
            status_path: Some(status.to_owned()),
            ..pool.clone()
        };
        let pools = [paths("/ping", "/status"), paths("/same", "/same"), pool.clone()];
        let ping = |pool| Some(PoolPage { pool, kind: PoolPageKind::Ping });
        assert_eq!(PoolPage::at(b"/ping", 0, &pools), ping(0));
        let status = Some(PoolPage { pool: 0, kind: PoolPageKind::Status });
        assert_eq!(PoolPage::at(b"/status", 0, &pools), status);
        assert_eq!(PoolPage::at(b"/same", 1, &pools), ping(1));
        for (path, pool) in [("/status/", 0), ("/Ping", 0), ("/ping", 1), ("/ping", 2), ("", 2)] {
            assert_eq!(PoolPage::at(path.as_bytes(), pool, &pools), None, "{path} {pool}");
        }
    }
}
