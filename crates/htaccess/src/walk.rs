//! Look-up of a path in the file system.

use crate::file::File;
use crate::files::Files;
use crate::limits;
use crate::merged::{Chain, Merged};
use crate::reason::Reason;
use crate::request::Kind;
use crate::state::{Context, Pass, Refusal};
use crate::text::{self, lossy};

/// Follows the path through the folders as far as they exist, and collects their rules.
pub(crate) fn walk(
    context: &Context<'_>,
    files: &dyn Files,
    pass: &mut Pass,
) -> Result<Chain, Refusal> {
    let (length, folder) = match files.alias(&pass.path) {
        Some((length, folder)) if length <= pass.path.len() => (length, folder),
        _ => (0, context.site.root.to_vec()),
    };
    (pass.prefix, pass.folder) = (pass.path[..length].to_vec(), folder.clone());
    // The folder may lie in another folder of the site, whose rules apply to it.
    let (outermost, inner) = folder.split_at(files.outermost(&folder).min(folder.len()));
    let (mut chain, mut here) = (Chain::new(), outermost.to_vec());
    let mut options = Merged { follow_links: true, ..Merged::default() };
    let mut rest = text::concat(&[inner, &pass.path[length..]]);
    let mut weight = 0;
    pass.found = files.look(&here);
    pass.file = here.clone();
    for depth in 0.. {
        if pass.found.is_none_or(|found| found.kind != Kind::Folder) {
            break;
        }
        if depth > limits::FOLDERS {
            return Err(Refusal::status(404));
        }
        if let Some(file) = files.rules(&here) {
            if let Some((status, why)) = file.broken() {
                return Err(Refusal { status, why: Some(why) });
            }
            weight += file.weight();
            let is_light = weight <= limits::WEIGHT;
            // Reading the file may have taken long.
            if !is_light || context.budget.time().is_err() {
                return Err(too_costly(&file, is_light));
            }
            options.set_options(&file.scope().options);
            chain.push((here.clone(), file));
        }
        let segments = rest.strip_prefix(b"/").unwrap_or_default();
        if segments.is_empty() {
            break;
        }
        let end = segments.iter().position(|byte| *byte == b'/').unwrap_or(segments.len());
        let next = text::concat(&[&here, b"/", &segments[..end]]);
        let is_refused = match (options.follow_own_links, options.follow_links) {
            // The owner counts even if the other option lets every link be followed.
            (true, _) => files.is_foreign_link(&next),
            (false, follow_all) => !follow_all && files.is_link(&next),
        };
        if is_refused {
            return Err(link_refused(&chain, &next, options.follow_own_links));
        }
        pass.found = files.look(&next);
        rest = segments[end..].to_vec();
        here = next;
        pass.file.clone_from(&here);
    }
    let is_folder = pass.found.is_some_and(|found| found.kind == Kind::Folder);
    if is_folder && rest == b"/" {
        pass.file.push(b'/');
        rest.clear();
    }
    pass.path_info = rest;
    Ok(chain)
}

fn too_costly(file: &File, is_light: bool) -> Refusal {
    let text = match is_light {
        true => "reading the files of the folders on the way took too long",
        false => "the files of the folders on the way take too much memory",
    };
    let (file, text) = (file.name().to_string(), text.to_owned());
    Refusal { status: 500, why: Some(Reason { file, line: 0, text }) }
}

/// `own`: links to what belongs to their owner may be followed.
fn link_refused(chain: &Chain, path: &[u8], own: bool) -> Refusal {
    let file = chain.last().map_or_else(String::new, |(_, file)| file.name().to_string());
    let why = match own {
        true => "its target has another owner or is missing (Options SymLinksIfOwnerMatch)",
        false => "Options forbid to follow it",
    };
    let text = format!("{} is a symbolic link, and {why}", lossy(path));
    Refusal { status: 403, why: Some(Reason { file, line: 0, text }) }
}
