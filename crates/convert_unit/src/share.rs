//! Files: `share`, with what answers if there are none.

use super::builder::{Builder, When};
use super::conditions::Shape;
use super::json::Node;
use super::text::{folder, literal};
use sendoff_convert_document::Section;

impl Builder<'_> {
    pub(super) fn share(
        &mut self,
        action: &Node<'_>,
        share: &Node<'_>,
        when: &When,
        own: &Section,
        depth: usize,
    ) {
        for name in ["types", "traverse_mounts"] {
            let other = action.get(name);
            // Sources of PHP are never sent.
            let hides_php = |node: &Node<'_>| {
                name == "types"
                    && node.texts().is_some_and(|texts| {
                        texts.iter().all(|text| text.starts_with('!') && text.contains("php"))
                    })
            };
            if let Some(other) = other.filter(|node| node.flag() != Some(true) && !hides_php(node))
            {
                return self.refuse(when, &other, "it restricts the files that are sent");
            }
        }
        let strict = ["chroot", "follow_symlinks"]
            .iter()
            .any(|name| action.get(name).is_some_and(|value| value.flag() != Some(true)));
        if strict {
            self.site.set("symlinks", "inside");
        }
        let shares: Option<Vec<_>> = share.texts();
        let shares = shares.and_then(|texts| texts.into_iter().map(folder).collect());
        let Some(shares): Option<Vec<(&str, bool)>> = shares.filter(|all: &Vec<_>| !all.is_empty())
        else {
            return self.refuse(when, share, "only folders in front of $uri are known");
        };
        let index = action.text_of("index").unwrap_or("index.html");
        if index.is_empty() || index.contains('/') {
            return self.refuse(when, action, "its index is no name of a file");
        }
        for (root, has_uri) in &shares {
            if *has_uri {
                self.shares.push((root.trim_end_matches('/').to_owned(), index.to_owned()));
            }
        }
        let fallback = action.get("fallback");
        let is_plain = matches!(shares[..], [(root, true)] if Some(root.trim_end_matches('/')) == self.folders.root.as_deref());
        if is_plain && fallback.is_none() && self.folders.index.as_deref() == Some(index) {
            return self.answer(when, own, &|route| route.set("static", true));
        }
        self.tried(&shares, index, fallback, when, own, depth);
    }

    /// Tries files, and gives the request to the action of `fallback` if there are none.
    fn tried(
        &mut self,
        shares: &[(&str, bool)],
        index: &str,
        fallback: Option<Node<'_>>,
        when: &When,
        own: &Section,
        depth: usize,
    ) {
        let last = fallback.as_ref().map(|_| self.mark());
        let marks: Vec<_> = shares.iter().map(|share| (*share, self.mark())).collect();
        let folders: Vec<_> = marks.iter().map(|_| self.mark()).collect();
        let otherwise = |path: &str| match last {
            Some(mark) => format!("/@unit/{mark}{path}"),
            None => "=404".to_owned(),
        };
        for ((root, has_uri), mark) in &marks {
            let folder = match has_uri {
                true => root.trim_end_matches('/'),
                false => root.rsplit_once('/').map_or("", |(folder, _)| folder),
            };
            let folder = if folder.is_empty() { "/" } else { folder };
            self.site.set_in("alias", &format!("/@unit/{mark}"), folder);
        }
        for (((root, has_uri), _), mark) in marks.iter().zip(&folders) {
            if *has_uri {
                let root = root.trim_end_matches('/');
                let root = if root.is_empty() { "/" } else { root };
                self.site.set_in("alias", &format!("/@unit/{mark}"), root);
            }
        }
        let fixed = |root: &str| {
            let name = root.rsplit_once('/').map_or("", |(_, name)| name);
            literal(if name.is_empty() { index } else { name })
        };
        let index = literal(index);
        // Files answer GET and HEAD; other methods get the action of `fallback`.
        let of_get = |route: &mut Section| {
            if last.is_some() && !route.has("method") {
                route.set("method", "GET");
            }
        };
        let is_fixed = marks.iter().all(|((_, has_uri), _)| !has_uri);
        self.add(when, if is_fixed { Shape::Any } else { Shape::Folder }, &|route, path| {
            let files = marks.iter().map(|((root, has_uri), mark)| match has_uri {
                true => format!("/@unit/{mark}{path}{index}"),
                false => format!("/@unit/{mark}/{}", fixed(root)),
            });
            route.set("try_files", files.chain([otherwise(path)]).collect::<Vec<_>>());
            of_get(route);
        });
        let of_files = |route: &mut Section, path: &str| {
            let mut files = Vec::new();
            for (((root, has_uri), mark), folder) in marks.iter().zip(&folders) {
                if *has_uri {
                    files.push(format!("/@unit/{mark}{path}"));
                    files.push(format!("/@unit/{folder}{path}/"));
                } else {
                    files.push(format!("/@unit/{mark}/{}", fixed(root)));
                }
            }
            files.push(otherwise(path));
            route.set("try_files", files);
            of_get(route);
        };
        if !is_fixed {
            self.add(when, Shape::File, &of_files);
        }
        if last.is_some() {
            self.add(when, Shape::Unmarked, &|route, path| route.set("rewrite", otherwise(path)));
        }
        for (((_, has_uri), mark), folder) in marks.iter().zip(&folders) {
            let mut route = Section::new("site.route");
            route.set("prefix", format!("/@unit/{mark}"));
            route.absorb(own.clone());
            route.set("static", true);
            self.routes.push(route);
            if *has_uri {
                self.redirect_to_folder(*folder, own);
            }
        }
        if let (Some(fallback), Some(mark)) = (fallback, last) {
            self.action(&fallback, &When::Marked(mark), &Section::default(), depth + 1);
        }
    }

    /// Redirects to the folder at a marked path.
    pub(super) fn redirect_to_folder(&mut self, mark: usize, own: &Section) {
        let mut route = Section::new("site.route");
        route.set("match", format!(r"(?s)^/@unit/{mark}(/.*/)\z"));
        route.absorb(own.clone());
        route.set("redirect", "$1");
        route.set("status", 301);
        self.routes.push(route);
    }
}
