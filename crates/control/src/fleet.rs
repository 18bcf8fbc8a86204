//! The node of a fleet, in the report of `sendoff status`.

use std::fmt;

use sendoff_report::status::FleetStatus;

use crate::report::Ago;

/// The state of a node, as text for people.
pub(crate) struct FleetText<'r>(pub(crate) &'r FleetStatus);

impl fmt::Display for FleetText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(FleetStatus { name, engine, why, since, sent, obeyed, restarts, broken, waiting }) =
            self;
        let since = Ago(*since);
        match why {
            None => write!(f, "{name}: {engine} serves for {since}")?,
            Some(why) => write!(f, "{name}: {engine} is away for {since}: {why}")?,
        }
        write!(f, "; purges: {sent} sent, {obeyed} obeyed")?;
        for (count, what) in [(*waiting as u64, "waiting"), (*restarts, "of all pages for safety")]
        {
            if count > 0 {
                write!(f, ", {count} {what}")?;
            }
        }
        match broken {
            0 => Ok(()),
            broken => write!(f, "; {broken} foreign records"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_read_whether_the_engine_serves() {
        let mut status = FleetStatus {
            name: "shop".to_owned(),
            engine: "10.0.0.31:6379".to_owned(),
            why: None,
            since: 65,
            sent: 12,
            obeyed: 7,
            restarts: 0,
            broken: 0,
            waiting: 0,
        };
        assert_eq!(
            FleetText(&status).to_string(),
            "shop: 10.0.0.31:6379 serves for 1 min 5 s; purges: 12 sent, 7 obeyed"
        );
        status.why = Some("it has not answered within 2s".to_owned());
        (status.waiting, status.restarts, status.broken) = (3, 1, 2);
        assert_eq!(
            FleetText(&status).to_string(),
            "shop: 10.0.0.31:6379 is away for 1 min 5 s: it has not answered within 2s; purges: 12 \
             sent, 7 obeyed, 3 waiting, 1 of all pages for safety; 2 foreign records"
        );
    }
}
