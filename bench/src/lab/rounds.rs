//! Experiments with a way of their own to measure a server: rounds in which servers take turns.

use super::claims::Claim;
use super::comparison::start_servers;
use super::experiment::{Effort, Experiment, Figure, Stage, Workbench};
use super::results::{Conditions, Point, Series, Values};
use crate::measure::{Contestant, Plan};
use crate::peers::{Peer, Sendoff};
use crate::site::{Account, Site};
use anyhow::Result;
use std::path::PathBuf;

/// An experiment that measures one server at a time.
pub(crate) struct Measurement {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) workers: usize,
    pub(crate) servers: fn(&Sendoff) -> Vec<Box<dyn Peer>>,
    pub(crate) points: fn(Effort) -> Vec<Point>,
    /// Writes the pages into the site.
    pub(crate) furnish: fn(&Site, Effort) -> Result<()>,
    /// One run of one server.
    pub(crate) run: fn(&Setting, &Contestant, &Point) -> Result<Values>,
    pub(crate) figures: fn() -> Vec<Figure>,
    pub(crate) claims: &'static [Claim],
}

/// Everything that a run may want to know.
pub(crate) struct Setting {
    pub(crate) plan: Plan,
    pub(crate) effort: Effort,
    pub(crate) workers: usize,
    /// The folder of the experiment, on the file system of the servers' temporary files.
    pub(crate) dir: PathBuf,
}

impl Experiment for Measurement {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn points(&self, effort: Effort) -> Vec<Point> {
        (self.points)(effort)
    }

    fn start(&self, bench: &Workbench, conditions: &mut Conditions) -> Result<Box<dyn Stage>> {
        let site = Site::create(&bench.dir, Account::for_servers()?, &[])?;
        let site = site.with_workers(self.workers);
        (self.furnish)(&site, bench.effort)?;
        let contestants = start_servers((self.servers)(&bench.sendoff), &site, bench, conditions)?;
        let setting = Setting {
            plan: bench.plan,
            effort: bench.effort,
            workers: self.workers,
            dir: bench.dir.clone(),
        };
        Ok(Box::new(Rounds { setting, contestants, run: self.run }))
    }

    fn figures(&self) -> Vec<Figure> {
        (self.figures)()
    }

    fn claims(&self) -> &'static [Claim] {
        self.claims
    }
}

struct Rounds {
    setting: Setting,
    contestants: Vec<Contestant>,
    run: fn(&Setting, &Contestant, &Point) -> Result<Values>,
}

impl Stage for Rounds {
    fn measure(&mut self, point: &Point) -> Result<Vec<Series>> {
        let named =
            |contestant: &Contestant| Series { name: contestant.name.clone(), ..Series::default() };
        let mut all: Vec<Series> = self.contestants.iter().map(named).collect();
        for round in 0..self.setting.plan.rounds {
            let mut order: Vec<usize> = (0..all.len()).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for index in order {
                if all[index].error.is_none() {
                    let values = (self.run)(&self.setting, &self.contestants[index], point);
                    all[index].take(values);
                }
            }
        }
        Ok(all)
    }
}
