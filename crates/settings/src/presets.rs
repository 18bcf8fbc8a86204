//! Rules of applications, from their vendors' documentation.

use sendoff_setting_values::{App, Problems, Sources, Word};

use crate::keys::{Site, Top};
use crate::nested::read;

/// The file with the rules of an application.
fn text(app: App) -> &'static str {
    match app {
        App::Dokuwiki => include_str!("../presets/dokuwiki.toml"),
        App::Drupal => include_str!("../presets/drupal.toml"),
        App::Laravel => include_str!("../presets/laravel.toml"),
        App::Matomo => include_str!("../presets/matomo.toml"),
        App::Mediawiki => include_str!("../presets/mediawiki.toml"),
        App::Moodle => include_str!("../presets/moodle.toml"),
        App::Nextcloud => include_str!("../presets/nextcloud.toml"),
        App::Phpmyadmin => include_str!("../presets/phpmyadmin.toml"),
        App::Roundcube => include_str!("../presets/roundcube.toml"),
        App::Symfony => include_str!("../presets/symfony.toml"),
        App::Wordpress => include_str!("../presets/wordpress.toml"),
    }
}

/// Replaces `app` of each site by its rules: keys that the site does not set itself, and routes
/// behind the site's own.
pub fn expand(top: &mut Top, sources: &mut Sources, problems: &mut Problems) {
    for site in &mut top.site.value.0 {
        let Some(app) = site.app.take().map(|app| app.value) else { continue };
        let name = format!("preset {}", app.text());
        let file = sources.add(name.into(), text(app).to_owned());
        let mut preset: Site = read(sources, file, problems);
        if site.page_cache.as_ref().is_some_and(|keep| keep.value.0.is_lscache()) {
            // The application's plugin knows better which requests have pages of their own.
            preset.route.value.0.retain(|route| route.page_cache.is_none());
        }
        site.route.value.0.append(&mut preset.route.value.0);
        preset.route.value.0.clone_from(&site.route.value.0);
        site.fill(preset);
    }
}
