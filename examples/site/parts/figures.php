<?php
// CPU time of the whole server side for one response, in µs: nginx + php-fpm, tuned, and Sendoff.
// Written by `make figures` from bench/figures.json.

return [
    'conditions' => 'Measured on 2026-11-22: Linux 6.18 in a virtual machine with 2 cores, TCP BBR; nginx 1.22, lighttpd 1.4.69, Apache 2.4, PHP 8.2. Medians of 3 rounds of 1 s with 32 keep-alive connections.',
    'hello' => [22, 21],
    'file-10k' => [31, 31],
    'file-60k' => [49, 31],
    'file-200k' => [90, 38],
    'file-1m' => [350, 88],
    'mixed-60k' => [46, 34],
    'mixed-1m' => [509, 143],
    'readfile-1m' => [272, 88],
    'loop-1m' => [366, 115],
    'readfile-100m' => [33641, 7134],
    'include-60k' => [34, 24],
    'html-60k' => [29, 21],
    'generated-32k' => [28, 22],
    'generated-128k' => [58, 27],
    'generated-1m' => [248, 74],
    'changing-60k' => [46, 81],
    'static-10k' => [4, 5],
    'static-60k' => [5, 6],
    'static-200k' => [10, 15],
    'static-1m' => [66, 66],
];
