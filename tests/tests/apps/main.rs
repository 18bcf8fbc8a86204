//! Applications from Debian's packages, each behind Sendoff, nginx with php-fpm, and Apache: a file of requests for each, the
//! same answers, and nothing that the others refuse. What differs is in the files of requests, with the reason.
#![allow(clippy::unwrap_used, reason = "the panic is the failure report")]

mod database;
mod documents;
mod dokuwiki;
mod farm;
mod fields;
mod frameworks;
mod kept;
mod mail;
mod mediawiki;
mod phpmyadmin;
mod presets;
mod roundcube;
mod skeletons;
mod walk;
mod wordpress;
