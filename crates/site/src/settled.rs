//! Decisions that hold for all clients that request an address.

use std::rc::Rc;

use http::Method;
use sendoff_message::request::Request;
use sendoff_site_files::router::PathTarget;

use crate::Site;
use crate::effects::{Answer, Effects};

/// The conditions under which a decision still holds for its address, in the same generation of the
/// configuration.
#[derive(Debug)]
pub struct Settled {
    /// Folders in which and above which no `.htaccess` file may lie, with their last slash.
    folders: Vec<Rc<[u8]>>,
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
            && !request.path.contains(&b'\\')
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
        let folder = |path: &Vec<u8>| {
            let end = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
            Rc::from(&path[..end])
        };
        let mut folders: Vec<_> = paths.iter().map(folder).collect();
        folders.dedup();
        Some(Settled { folders }).filter(|settled| self.is_still(settled, &mut Vec::new()))
    }

    /// True if the conditions of a decision of this site hold now. `free`: folders of which that is
    /// already known; others are added.
    #[must_use]
    pub fn is_still(&self, settled: &Settled, free: &mut Vec<Rc<[u8]>>) -> bool {
        let is_free = |folder: &Rc<[u8]>| {
            let is_known = free.contains(folder);
            let is_free = is_known || !self.is_decided_by_files(folder);
            if is_free && !is_known {
                free.push(Rc::clone(folder));
            }
            is_free
        };
        self.htaccess.is_none() || settled.folders.iter().all(is_free)
    }
}
