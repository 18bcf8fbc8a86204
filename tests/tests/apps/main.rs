//! Applications from Debian's packages, each behind Sendoff, nginx with php-fpm, and Apache: all
//! give the same answers to a file of requests, and Sendoff refuses all requests that the others
//! refuse. Known differences are in the files of requests, each with the reason.
#![allow(clippy::unwrap_used, reason = "the panic is the failure report")]

mod database;
mod documents;
mod dokuwiki;
mod dokuwiki_slow;
mod farm;
mod fields;
mod fragments;
mod frameworks;
mod kept;
mod lscache;
mod mail;
mod mediawiki;
mod phpmyadmin;
mod presets;
mod roundcube;
mod skeletons;
mod walk;
mod wordpress;
