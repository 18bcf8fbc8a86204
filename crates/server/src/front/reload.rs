//! The reload of a running front: another configuration from the next request on, or none of it.

use std::convert::Infallible;
use std::rc::Rc;
use std::sync::Arc;

use sendoff_config::Config;
use sendoff_report::access_log::LogFile;
use tokio::sync::mpsc;
use tokio::task::spawn_local;

use super::generation::{Generation, PoolUse, gateways, tls_of_sites};
use super::loop_listeners::ListenerChanges;
use super::orders::{ListenerSource, LogSource, PoolSource, Reload};
use super::running::RunningFront;
use super::running_loop::LoopOrder;
use super::running_pool::{Arriving, Phase, RunningPool};

impl RunningFront {
    /// Serves by another configuration from the next request on. The workers of new pools must
    /// arrive first; if they do not, nothing changes.
    pub(super) async fn reload(self: Rc<Self>, reload: Reload) -> Result<(), String> {
        let Reload { mut config, vault, pools: sources, logs, listeners } = reload;
        let tls = tls_of_sites(&config, &vault, &self.means.tickets)?;
        let secrets = vault.fleet;
        let before = Arc::clone(&self.generation.borrow());
        let (pools, arriving) = self.pools_from(sources, &config).await?;
        let log = |source| match source {
            LogSource::Kept(number) => before.logs.get(number).cloned(),
            LogSource::New(file) => Some(LogFile::new(file)),
        };
        let logs: Option<_> = logs.into_iter().map(log).collect();
        let logs = logs.ok_or("a log that is to stay does not exist")?;
        let (listener_places, listeners) = self.listeners(listeners, &config)?;
        for site in &mut config.sites {
            let places = site.listeners.iter().filter_map(|number| listener_places.get(*number));
            site.listeners = places.copied().collect();
        }
        let config = Arc::new(config);
        let used = |pool: &Rc<RunningPool>| PoolUse {
            place: pool.place,
            in_use: pool.users.subscribe(),
            application: pool.application.clone(),
        };
        let used: Vec<_> = pools.iter().map(used).collect();
        let generation = Arc::new(Generation {
            attached: before.attached_for(&config, &used),
            gateways: gateways(&config, &before.gateways),
            channel: before.channel.clone(),
            logs,
            auth: Arc::clone(&before.auth),
            tls,
            tickets: before.tickets.clone(),
            challenges: Arc::clone(&before.challenges),
            pools: used,
            config,
        });
        self.serve(&generation, listeners).await;
        self.means.exporter.serve(generation.config.traces.as_ref());
        self.listeners.replace(listener_places);
        arriving.into_iter().for_each(Arriving::stay);
        pools.iter().for_each(|pool| pool.phase.set(Phase::Serving));
        self.generation.replace(generation);
        let left = self.pools.replace(pools);
        self.join_fleet(&secrets);
        self.end_unused(left);
        Ok(())
    }

    /// The pools of a configuration. The new ones have arrived; they are removed again unless they
    /// are told to stay.
    async fn pools_from(
        &self,
        sources: Vec<PoolSource>,
        config: &Config,
    ) -> Result<(Vec<Rc<RunningPool>>, Vec<Arriving<'_>>), String> {
        let mut pools = Vec::new();
        let mut arriving = Vec::new();
        for (source, pool_config) in sources.into_iter().zip(&config.pools) {
            let pool = match source {
                PoolSource::Kept(number) => {
                    let kept = self.pools.borrow().get(number).cloned();
                    kept.ok_or("a pool that is to stay does not exist")?
                }
                PoolSource::New(socket) => {
                    let (pool, new) = self.add_pool(pool_config, socket).await?;
                    let arrives = Arriving { pool: Some(Rc::clone(&pool)), running: self };
                    arriving.push((arrives, new));
                    pool
                }
            };
            pools.push(pool);
        }
        for (arrives, new) in &arriving {
            arrives.arrive(new).await?;
        }
        Ok((pools, arriving.into_iter().map(|(arrives, _)| arrives).collect()))
    }

    /// Has every event loop serve by a generation, each with its changes of listeners.
    async fn serve(&self, generation: &Arc<Generation>, listeners: Vec<ListenerChanges>) {
        let (done, mut followed) = mpsc::channel(1);
        for (event_loop, listeners) in self.loops.iter().zip(listeners) {
            let (generation, listeners) = (Arc::clone(generation), Some(listeners));
            let order = LoopOrder::Serve { generation, listeners, done: done.clone() };
            // Fails only if the loop has ended; then it needs no order.
            let _ = event_loop.orders.send(order);
        }
        drop(done);
        let None::<Infallible> = followed.recv().await;
    }

    /// Ends the pools of the previous generation that the current one does not use, each after its
    /// last request.
    fn end_unused(self: Rc<Self>, before: Vec<Rc<RunningPool>>) {
        let pools = self.pools.borrow();
        let is_unused =
            |before: &Rc<RunningPool>| !pools.iter().any(|pool| Rc::ptr_eq(pool, before));
        for pool in before.into_iter().filter(is_unused) {
            pool.phase.set(Phase::Leaving);
            let running = Rc::clone(&self);
            spawn_local(async move {
                pool.users.closed().await;
                running.end_pool(&pool);
            });
        }
    }

    /// Returns the place of each listener of a configuration, and the changes for each event loop.
    fn listeners(
        &self,
        sources: Vec<ListenerSource>,
        config: &Config,
    ) -> Result<(Vec<usize>, Vec<ListenerChanges>), String> {
        let before = self.listeners.borrow();
        let mut of_loops = vec![ListenerChanges::default(); self.loops.len()];
        let mut places = Vec::new();
        for (source, listener) in sources.into_iter().zip(&config.listen) {
            let place = match source {
                ListenerSource::Kept(number) => {
                    let place =
                        *before.get(number).ok_or("a listener that is to stay does not exist")?;
                    for of_loop in &mut of_loops {
                        of_loop.kept.push((place, listener.clone()));
                    }
                    place
                }
                ListenerSource::New(sockets) => {
                    let place = self.listener_places.get();
                    self.listener_places.set(place + 1);
                    for (of_loop, socket) in of_loops.iter_mut().zip(sockets) {
                        of_loop.new.push((place, listener.clone(), Arc::new(socket)));
                    }
                    place
                }
            };
            places.push(place);
        }
        Ok((places, of_loops))
    }
}
