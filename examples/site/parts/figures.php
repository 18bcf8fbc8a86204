<?php
// CPU time of the whole server side for one response, in µs: nginx + php-fpm, tuned, and Sendoff.
// Written by `make figures` from bench/figures.json.

return [
    'conditions' => 'Measured on 2026-11-27: Linux 6.18 in a virtual machine with 2 cores, TCP BBR; nginx 1.22, lighttpd 1.4.69, Apache 2.4, PHP 8.2. Medians of 9 rounds of 0.35 s with 32 keep-alive connections.',
    'hello' => [138, 87],
    'file-10k' => [191, 117],
    'file-60k' => [254, 102],
    'file-200k' => [624, 153],
    'file-1m' => [2117, 333],
    'mixed-60k' => [320, 190],
    'mixed-1m' => [4046, 624],
    'readfile-1m' => [1371, 372],
    'loop-1m' => [2629, 485],
    'readfile-100m' => [156356, 34984],
    'include-60k' => [196, 120],
    'html-60k' => [228, 118],
    'generated-32k' => [205, 119],
    'generated-128k' => [332, 237],
    'generated-1m' => [1664, 464],
    'changing-60k' => [329, 380],
    'static-10k' => [22, 28],
    'static-60k' => [24, 30],
    'static-200k' => [50, 64],
    'static-1m' => [243, 232],
];
