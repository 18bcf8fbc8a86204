//! The entries of a folder that a client may see: those that the site would serve to it.

use std::rc::Rc;

use sendoff_config::BasicAuth;
use sendoff_message::request::Request;
use sendoff_site_files::router::ListKind;
use sendoff_static_files::Refusal;

use super::Site;
use super::effects::Effects;

/// Maximum number of entries of one folder that are listed. Each costs the event loop four system
/// calls and about 150 bytes of page.
pub const MAX_ENTRIES: usize = 10_000;

/// A file or folder in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListEntry {
    /// Its name, in the bytes of the file system.
    pub name: Vec<u8>,
    /// The kind of the entry, behind symbolic links.
    pub kind: ListKind,
    /// Its last modification, in seconds since 1970.
    pub modified: u64,
}

/// Lists one folder for one client.
#[derive(Debug)]
pub struct FolderLister<'s> {
    site: &'s Site,
    /// The request for the folder; its path changes to the path of each entry in turn.
    request: Request,
    folder: Vec<u8>,
    /// Passwords and authorizers that the client had to pass for the folder.
    passed: Box<Effects>,
}

/// The names in a folder.
#[derive(Debug)]
pub struct FolderNames {
    /// The names, in the order of the file system.
    pub names: Vec<Vec<u8>>,
    /// There are more than [`MAX_ENTRIES`].
    pub is_cut: bool,
}

impl Site {
    /// The names in the folder at the request's path.
    ///
    /// # Errors
    /// The folder is no longer there, or must not be served.
    pub fn names(&self, request: &Request) -> Result<FolderNames, Refusal> {
        let mut names = self.router.names_in(&request.path, MAX_ENTRIES + 1)?;
        let is_cut = names.len() > MAX_ENTRIES;
        names.truncate(MAX_ENTRIES);
        Ok(FolderNames { names, is_cut })
    }

    /// A lister of the folder at the request's path, which the client may see.
    pub async fn lister(&self, request: &Request) -> FolderLister<'_> {
        let mut request = request.without_body();
        let folder = request.path.clone();
        let mut passed = self.unscripted();
        // The routes have allowed the folder, so only the passwords and authorizers matter.
        let _allowed = self.rules.protect(self.folders(None), &mut request, &mut passed).await;
        FolderLister { site: self, request, folder, passed }
    }

    /// Effects in which all Lua scripts of routes have run, so that none runs for an entry.
    fn unscripted(&self) -> Box<Effects> {
        Box::new(Effects { scripts_ran: (0..self.rules.len()).collect(), ..Effects::default() })
    }
}

impl FolderLister<'_> {
    /// The entry of this name; `None`: the client would not get it.
    pub async fn entry(&mut self, name: Vec<u8>) -> Option<ListEntry> {
        let path = [&self.folder[..], &name].concat();
        let (kind, modified) = self.site.router.listed(&path)?;
        let path = match kind {
            ListKind::Folder => [&path[..], b"/"].concat(),
            ListKind::File(_) => path,
        };
        if self.site.is_decided_by_files(&path) {
            return None;
        }
        self.request.path = path;
        let mut effects = self.site.unscripted();
        let site = self.site;
        let rules = site.rules.protect(site.folders(None), &mut self.request, &mut effects);
        if rules.await.is_err() {
            return None;
        }
        let passed = &self.passed;
        let needs_password = effects.auth.iter().any(|auth| !has_auth(&passed.auth, auth));
        let needs_consent = effects.authorizers.iter().any(|one| !passed.authorizers.contains(one));
        (!needs_password && !needs_consent).then_some(ListEntry { name, kind, modified })
    }
}

fn has_auth(passed: &[Rc<BasicAuth>], auth: &Rc<BasicAuth>) -> bool {
    passed.iter().any(|known| known.users == auth.users)
}
