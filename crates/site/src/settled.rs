//! Decisions that hold for every request for an address, whoever asks.

use http::Method;
use sendoff_message::request::Request;

use crate::Site;
use crate::effects::{Answer, Effects};
use crate::router::PathTarget;

/// The conditions under which a decision still holds for its address, in the same generation of the
/// configuration.
#[derive(Debug)]
pub struct Settled {
    /// Paths for which no `.htaccess` file may decide.
    paths: Vec<Vec<u8>>,
}

impl Site {
    /// The conditions under which requests by GET for the address of this one are decided like it,
    /// whatever fields and client they have; `None`: the decision may depend on more than the
    /// address. In doubt it does.
    #[must_use]
    pub fn settled(
        &self,
        request: &Request,
        answer: &Answer,
        effects: &Effects,
    ) -> Option<Settled> {
        let is_settled = request.method == Method::GET
            && !request.uri.contains(&b';')
            && self.scripts.is_none()
            && self.granted_fields.is_empty()
            && effects.is_settled();
        if !is_settled {
            return None;
        }
        let (mut asked, mut paths) = (vec![&request.path[..]], Vec::new());
        match answer {
            Answer::Proxy { .. } => {}
            Answer::Path(PathTarget::Script(script)) => {
                asked.push(&script.name);
                paths.push(request.path.clone());
                paths.extend(self.router.path_of(&script.filename));
            }
            _ => return None,
        }
        if !asked.into_iter().all(|path| self.rules.are_settled_at(path)) {
            return None;
        }
        Some(Settled { paths }).filter(|settled| self.is_still(settled))
    }

    /// True if the conditions of a decision of this site hold now.
    #[must_use]
    pub fn is_still(&self, settled: &Settled) -> bool {
        let is_decided = |path: &Vec<u8>| self.is_decided_by_files(path);
        self.htaccess.is_none() || !settled.paths.iter().any(is_decided)
    }
}
