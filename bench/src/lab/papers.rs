//! Figures that the papers print, to show beside ours. Other machines, other software: the shape of
//! a curve can be compared, its height cannot.

/// A curve of a paper.
pub(crate) struct Paper {
    /// The paper's authors, and the name of the curve.
    pub(crate) name: &'static str,
    /// Pairs of x and y.
    pub(crate) points: &'static [(f64, f64)],
}

/// Suzumura and others, figure 3: zero copy against plain, by the size of the file in KB.
pub(crate) const SPEED_UP: &[Paper] = &[Paper {
    name: "Suzumura: zero copy / plain",
    points: &[(10.0, 1.26), (60.0, 2.26), (200.0, 2.0)],
}];

/// Figure 4: share of the CPU time in `memcpy`, without zero copy, by the size of the file in KB.
pub(crate) const COPY_SHARE: &[Paper] =
    &[Paper { name: "Suzumura: plain", points: &[(10.0, 20.0), (60.0, 60.0), (200.0, 60.0)] }];

/// Figure 5: share of the CPU time in `memcpy` for 60 KB, by operations of the script. The paper
/// says how far it falls; the first value is figure 4's.
pub(crate) const COPY_SHARE_BY_WORK: &[Paper] =
    &[Paper { name: "Suzumura: plain", points: &[(0.0, 63.6), (50_000.0, 7.6)] }];

/// Suzumura and others, figures 8 to 12: most sessions of Banking in the clear. Both stand beside
/// pages that are collected, as their pages are.
pub(crate) const BANKING_PEAKS: &[Paper] = &[
    Paper { name: "Suzumura: lighttpd + P9", points: &[(1.0, 2000.0)] },
    Paper { name: "Suzumura: with zero copy", points: &[(1.0, 2100.0)] },
];

/// Figures 13 to 17: most sessions of Ecommerce; the middle of the range in which the paper finds
/// each peak, as in the next table.
pub(crate) const ECOMMERCE_PEAKS: &[Paper] = &[
    Paper { name: "Suzumura: Zend", points: &[(1.0, 1350.0)] },
    Paper { name: "Suzumura: lighttpd + P9", points: &[(1.0, 1750.0)] },
    Paper { name: "Suzumura: with zero copy", points: &[(1.0, 2150.0)] },
    Paper { name: "Suzumura: a copy that the web server sends", points: &[(1.0, 2000.0)] },
];

/// Figures 19 to 23: most sessions of Support.
pub(crate) const SUPPORT_PEAKS: &[Paper] = &[
    Paper { name: "Suzumura: Zend", points: &[(1.0, 750.0)] },
    Paper { name: "Suzumura: lighttpd + P9", points: &[(1.0, 850.0)] },
    Paper { name: "Suzumura: with zero copy", points: &[(1.0, 1250.0)] },
];

/// The note about lighttpd and Lua: requests/s of one client, over new connections and a kept one.
pub(crate) const SET_UP: &[Paper] = &[
    Paper { name: "note: PHP, FastCGI", points: &[(0.0, 345.0), (1.0, 416.0)] },
    Paper { name: "note: Lua, FastCGI", points: &[(1.0, 625.0)] },
    Paper { name: "note: Lua in lighttpd", points: &[(1.0, 1700.0)] },
];

/// Yeung, table 5.1, Mbit/s of two CPUs and two web servers, by the size in KB.
pub(crate) const THESIS_RATES: &[Paper] = &[
    Paper {
        name: "Yeung: fcgi_inet",
        points: &thesis([1964., 2482., 2421., 2522., 2519., 2476., 2206., 2182.]),
    },
    Paper {
        name: "Yeung: base_uds",
        points: &thesis([2141., 2587., 2631., 2731., 2575., 2686., 2517., 2350.]),
    },
    Paper {
        name: "Yeung: sharedmem",
        points: &thesis([2207., 2878., 3052., 3151., 2939., 3103., 2856., 2706.]),
    },
    Paper {
        name: "Yeung: passfd",
        points: &thesis([2261., 2984., 3368., 3571., 3358., 3523., 3162., 3011.]),
    },
];

/// The same relative to UNIX sockets.
pub(crate) const THESIS_RATIOS: &[Paper] = &[
    Paper {
        name: "Yeung: fcgi_inet",
        points: &thesis([0.92, 0.96, 0.92, 0.92, 0.98, 0.92, 0.88, 0.93]),
    },
    Paper {
        name: "Yeung: sharedmem",
        points: &thesis([1.03, 1.11, 1.16, 1.15, 1.14, 1.16, 1.13, 1.15]),
    },
    Paper {
        name: "Yeung: passfd",
        points: &thesis([1.06, 1.15, 1.28, 1.31, 1.30, 1.31, 1.26, 1.28]),
    },
];

/// Sizes of the thesis' tables in KB.
pub(crate) const THESIS_SIZES: [u32; 8] = [32, 64, 128, 256, 512, 1024, 2048, 4096];

const fn thesis(values: [f64; 8]) -> [(f64, f64); 8] {
    let mut points = [(0.0, 0.0); 8];
    let mut at = 0;
    while at < points.len() {
        points[at] = (THESIS_SIZES[at] as f64, values[at]);
        at += 1;
    }
    points
}
