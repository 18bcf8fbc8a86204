//! Makes small PHP programs out of a seed.

/// Names of the files that a program uses; the last file does not exist at first. `~` stands for a
/// number that no earlier program had: for two seconds a worker remembers names that led to no lazy
/// string.
pub(crate) const FILES: [&str; 5] = ["a~", "b~", "c~", "d~", "e~"];

/// Sizes around PHP's buffer, our threshold for segments, memory pages, and files that are sent
/// from memory.
const SIZES: [usize; 15] = [
    0, 1, 100, 4095, 4096, 4097, 8192, 8192, 9000, 16_384, 16_384, 20_001, 65_536, 70_000, 150_000,
];

/// Numbers for offsets, lengths and buffer sizes.
const NUMBERS: [i64; 14] = [0, 1, 2, 7, 100, 4095, 4096, 4097, 5000, 8192, 16_384, 30_000, -1, -50];

/// Sizes beyond one write to a link, a chunk of shared memory, or the room of a client's socket.
const LARGE: [usize; 7] = [32_768, 65_535, 131_072, 200_000, 262_145, 400_000, 1_500_000];

/// A program: statements that stand alone, so that leaving some out makes another program.
#[derive(Clone)]
pub(crate) struct Program {
    /// The files of the folder before the program starts, as names and contents.
    pub(crate) files: Vec<(String, String)>,
    /// The folder's `.user.ini`.
    pub(crate) settings: String,
    pub(crate) statements: Vec<String>,
    /// True if another process appends to a file before the second run.
    pub(crate) appended: bool,
    /// The form of the client's request.
    pub(crate) asks: Asks,
}

/// Ways to ask for a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asks {
    Usually,
    Http10,
    /// The client closes after it.
    Once,
    Head,
    /// It takes little at a time.
    Narrow,
    /// For the same page twice, without waiting for the first.
    Twice,
    /// It has gone before the end.
    Leaves,
    /// Ours by HTTP/2.
    Http2,
}

impl Program {
    pub(crate) fn new(seed: u64) -> Self {
        // Mixed, or one seed's numbers would be the next one's, shifted.
        let mut random = Random(Random(seed).next());
        let r = &mut random;
        let files = FILES[..4].iter().map(|name| ((*name).to_owned(), text(name, r.size())));
        let files = files.collect();
        let buffering = r.pick(&["0", "0", "4096", "4096", "4096", "On"]);
        let display = r.below(2);
        let settings = format!(
            "output_buffering = {buffering}\ndisplay_errors = {display}\nhtml_errors = 0\n"
        );
        let count = 3 + r.below(14);
        let statements = (0..count).map(|_| statement(r, 0)).collect();
        let appended = r.below(2) == 0;
        let unusual = [
            Asks::Http10,
            Asks::Once,
            Asks::Head,
            Asks::Narrow,
            Asks::Twice,
            Asks::Leaves,
            Asks::Http2,
            Asks::Http2,
        ];
        let asks = *unusual.get(r.below(16)).unwrap_or(&Asks::Usually);
        Self { files, settings, statements, appended, asks }
    }

    pub(crate) fn source(&self, number: u32) -> String {
        // A worker script may have run the program before: its declarations exist then.
        let source = format!(
            "<?php\nflock($GLOBALS['at work'] = fopen(__DIR__ . '/lock', 'c'), LOCK_EX);\nignore_user_abort(true);\nchdir(__DIR__ . '/files');\n$s = 'unread'; $t = '';\n\
             $GLOBALS['lines'] = 0;\n\
             if (!class_exists('Late', false)) {{ class Late {{ public function __construct(public $s) {{}}\n\
             \tpublic function __toString(): string {{ return (string) $this->s; }}\n\
             \tpublic function __destruct() {{ echo 'late:', $this->s; }} }} }}\n\
             if (!function_exists('large')) {{ function large($n) {{ $i = &$GLOBALS['lines']; for ($x = ''; strlen($x) < $n;) {{\n\
             \t$x .= ++$i . ',' . ($i % 50 ? '' : str_repeat(\"$i \", 90)); }} return substr($x, 0, $n); }} }}\n\
             register_shutdown_function(fn () => file_put_contents(__DIR__ . '/stats',\n\
             \tjson_encode(function_exists('sendoff_stats') ? sendoff_stats() : null)));\n{}\n",
            self.statements.join("\n")
        );
        source.replace('~', &number.to_string())
    }

    /// The program for a process that goes on: without statements that may end the process, and
    /// without those that print numbers of resources, which grow there.
    pub(crate) fn lasting(mut self) -> Self {
        const NOT: [&str; 4] = ["exit", "throw new", "undefined_function", "echo fopen("];
        self.statements.retain(|statement| !NOT.iter().any(|part| statement.contains(part)));
        self
    }
}

/// Lines that tell where they stand.
pub(crate) fn text(name: &str, size: usize) -> String {
    let mut text = String::with_capacity(size + 20);
    let mut line = 0;
    while text.len() < size {
        line += 1;
        text.push_str(&format!("{name} <{line}> {}\n", line * 7919 % 1000));
    }
    text.truncate(size);
    text
}

/// splitmix64.
pub(crate) struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).unwrap()
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    fn size(&mut self) -> usize {
        self.pick(&SIZES)
    }

    fn large(&mut self) -> usize {
        self.pick(&LARGE)
    }

    fn file(&mut self) -> String {
        let name = self.pick(&FILES);
        match self.below(8) {
            0 => format!("__DIR__ . '/files/{name}'"),
            1 => format!("'./{name}'"),
            2 => format!("'../files/{name}'"),
            3 => format!("'file://' . __DIR__ . '/files/{name}'"),
            _ => format!("'{name}'"),
        }
    }
}

/// Statements; none may run for long in any state. In them `@F` is a file, `@N` a number, `@Z` a
/// file's size, `@L` a large one, `@C` a call that returns a string, `@T` a text in the program
/// itself, `@S` a statement.
const OUTPUT: &[&str] = &[
    "echo @C;",
    "echo @C;",
    "echo @C;",
    "readfile(@F);",
    "readfile(@F);",
    "print @C;",
    "echo 'x', @C, '-', @C, \"y\\n\";",
    "echo $s; echo $t;",
    "echo $s, 'and', $t;",
    "echo \"<$s>\";",
    "echo $s . $t;",
    "echo 'before' . $s . 'after';",
    "echo \"a page: $s, and $t, and again $s\";",
    "echo str_replace('%', @C, 'begin % end');",
    "echo substr($s . $t, @Z);",
    "echo <<<END\n\tstart $s\n\t{$t} end\n\tEND;",
    "?>text <?= $s ?> text\n<?php",
    "?>@T<?php",
    "?>@T<?= $s ?>@T<?php",
    "echo '@T'; print '@T'; echo $t, '@T';",
    "for ($i = 0; $i < 3; $i++) { ?>@T<?php echo $i; }",
    "foreach (['@T', '@T', $s] as $x) { echo $x; }",
    "fwrite(fopen('php://output', 'w'), '@T');",
    "echo substr((string) $s, @N), '|', substr((string) $t, @N, @N);",
    "echo printf('%s|%5.3s|', $s, $t);",
    "vprintf(\"%'*9s%s\", [$t, $s]);",
    "fprintf(fopen('php://output', 'w'), '%s', $s);",
    "print_r($s); var_dump($t);",
    "echo strlen((string) $s), md5((string) $t);",
    "readfile(@F);",
    "echo @readfile(@F), ';';",
    "if ($h = fopen(@F, 'r')) { fseek($h, @N); echo fpassthru($h); fclose($h); }",
    "if ($h = @fopen(@F, 'r')) { while (!feof($h)) { echo fread($h, 3000); } }",
    "if ($h = @fopen(@F, 'r')) { while (!feof($h)) { echo fread($h, 8192); } }",
    "if ($h = @fopen(@F, 'r')) { while (!feof($h)) { fwrite(fopen('php://output', 'w'), fread($h, 16384)); } }",
    "if ($h = @fopen(@F, 'r')) { for ($k = 0; $k < 20 && !feof($h); $k++) { echo fread($h, 5000), ftell($h), feof($h); } }",
    "if ($h = @fopen(@F, 'r')) { while (!feof($h)) { $x = fread($h, 8192); echo $x; if (isset($x[@N])) { $x[0] = '#'; } } echo $x; }",
    "if ($h = @fopen(@F, 'r')) { echo fread($h, 8192); @S echo fread($h, 8192), ftell($h), fread($h, 8192); }",
    "if ($h = @fopen(@F, 'r')) { fseek($h, @N); echo fread($h, 20000), fgets($h), fread($h, 8192), feof($h); }",
    "if (($h = @fopen(@F, 'r')) && fstat($h)['size']) { echo fread($h, fstat($h)['size']), feof($h); }",
    "if ($h = @fopen(@F, 'r')) { while (($l = fgets($h)) !== false) { echo $l; } }",
    "fwrite(fopen('php://output', 'w'), (string) $s);",
    "file_put_contents('php://output', [$s, $t]);",
    "if ($h = @fopen(@F, 'r')) { echo stream_copy_to_stream($h, fopen('php://output', 'w')); }",
    "copy(@F, 'php://output');",
    "if (is_file(@F)) { try { (new SplFileObject(@F))->fpassthru(); } catch (RuntimeException $e) { echo $e->getMessage(); } }",
    "echo implode('', @file(@F) ?: []);",
    "echo new Late($s);",
    "echo (fn () => @C)();",
    "foreach ((function () use ($s) { yield $s; yield @C; })() as $x) { echo $x; }",
    "echo 'a', str_repeat('-', @Z), 'b';",
    "echo fopen(@F, 'r');",
    "error_log('logged ' . strlen((string) $s)); trigger_error(substr('t' . $t, 0, 30), E_USER_WARNING);",
];

/// Much at a time, in some of the ways in which pages are made.
const MUCH: &[&str] = &[
    "echo large(@L);",
    "echo large(@L), $s, large(@L);",
    "echo large(@L); echo @C;",
    "echo @C; flush(); echo large(@L);",
    "echo large(@L); flush(); echo 'end';",
    "foreach (str_split(large(@L), 5000) as $x) { echo $x; }",
    "foreach (str_split(large(@L), 40000) as $x) { echo $x; flush(); }",
    "foreach (str_split(large(@L), 70001) as $x) { echo $x, 'x'; }",
    "echo large(@L); readfile(@F); echo large(@L);",
    "ob_start(); echo large(@L); readfile(@F); @ob_end_flush();",
    "echo substr(large(@L), @N);",
    "header('Content-Length: ' . @L); echo large(@L);",
    "header('Content-Length: @L'); echo large(@L); echo large(@L);",
    "echo large(@L) . $s . large(@L) . $t;",
    "echo str_replace(',7,', (string) $s, large(65535));",
    "echo large(@L); error_log('between'); echo large(@L);",
    "if (function_exists('fastcgi_finish_request') && strlen((string) $s) > @Z) { echo large(@L); fastcgi_finish_request(); echo large(@L); }",
    "@ob_flush(); flush(); echo large(@L); exit;",
    "echo large(@L); throw new Exception('in the middle');",
    "file_put_contents('f~', large(@L)); readfile('f~');",
    "file_put_contents('f~', large(@L)); $s = file_get_contents('f~'); echo 'page: ', \"<$s>\", $s;",
    "file_put_contents('f~', large(@L)); echo file_get_contents('f~') . large(@L);",
    "file_put_contents('f~', large(@L)); $h = fopen('f~', 'r'); while (!feof($h)) { echo fread($h, 8192); }",
    "file_put_contents('f~', large(@L)); echo file_get_contents('f~'); file_put_contents('f~', 'gone'); echo large(@L); readfile('f~');",
    "file_put_contents('f~', large(@L)); readfile('f~'); unlink('f~'); echo large(@L);",
];

/// Loops over `fread()` that use its result in unusual ways: operators, generators, fibers,
/// callbacks of output buffers.
const CHUNKS: &[&str] = &[
    "if ($h = @fopen(@F, 'r')) { while (!feof($h)) { echo fread($h, 8192) . ''; } }",
    "if ($h = @fopen(@F, 'r')) { while (!feof($h)) { print fread($h, 8192); } }",
    "if ($h = @fopen(@F, 'r')) { echo (function () use ($h) { return fread($h, 8192); })(), fread($h, 8192); }",
    "if ($h = @fopen(@F, 'r')) { $f = 'fread'; echo $f($h, 8192), call_user_func('fread', $h, 8192), $f(...[$h, 8192]), fread(...[$h, 8192]); }",
    "if ($h = @fopen(@F, 'r')) { echo fread(length: 8192, stream: $h), \\fread($h, 8192), @fread($h, 8192); }",
    "if ($h = @fopen(@F, 'r')) { echo fread($h, 8192) ?: 'none', fread($h, 8192) ?? 'none', (string) fread($h, 8192); }",
    "if ($h = @fopen(@F, 'r')) { foreach ((function () use ($h) { while (!feof($h)) { yield fread($h, 8192); } })() as $x) { echo $x; } }",
    "if ($h = @fopen(@F, 'r')) { (function () use ($h) { while (!feof($h)) { echo fread($h, 8192); yield 1; echo fread($h, 8192); } })()->next(); }",
    "if ($h = @fopen(@F, 'r')) { $g = new Fiber(function () use ($h) { while (!feof($h)) { echo fread($h, 8192); Fiber::suspend(); } }); $g->start(); echo 'between'; while (!$g->isTerminated()) { $g->resume(); echo '.'; } }",
    "if ($h = @fopen(@F, 'r')) { ob_start(fn ($b) => md5($b), 8192); while (!feof($h)) { echo fread($h, 8192); } @ob_end_flush(); }",
    "if ($h = @fopen(@F, 'r')) { ob_start(fn ($b) => strrev($b)); while (!feof($h)) { echo fread($h, 8192); } ob_end_clean(); }",
    "if ($h = @fopen(@F, 'r')) { $out = fopen('php://output', 'w'); while (!feof($h)) { echo fwrite($out, fread($h, 8192)), ','; } fclose($out); }",
    "if ($h = @fopen(@F, 'r')) { $out = fopen('php://output', 'w'); stream_filter_append($out, 'string.rot13'); while (!feof($h)) { fwrite($out, fread($h, 8192)); } fclose($out); }",
    "if ($h = @fopen(@F, 'r')) { $out = fopen('php://output', 'w'); while (!feof($h)) { fputs($out, fread($h, 8192), 5000); } }",
    "if ($h = @fopen(@F, 'r')) { $out = fopen('php://memory', 'w+'); while (!feof($h)) { fwrite($out, fread($h, 8192)); } rewind($out); echo stream_get_contents($out); }",
    "if ($h = @fopen(@F, 'r')) { try { echo fread($h, 8192), throw new Exception('x'); } catch (Exception) { echo fread($h, 8192); } finally { echo fread($h, 8192); } }",
    "if ($h = @fopen(@F, 'r')) { ob_start(function ($b) { static $n = 0; if (++$n == 2) { throw new Exception('in a buffer'); } return $b; }, 1); try { while (!feof($h)) { echo fread($h, 8192); } } catch (Exception $e) { echo get_class($e); } }",
    "if ($h = @fopen(@F, 'r')) { for ($k = 0; $k < 40; $k++) { $x = fread($h, 8192); } echo $x; fseek($h, @N); echo fread($h, 8192), $x = fread($h, 8192), $x; }",
    "if ($h = @fopen(@F, 'r')) { echo fread($h, 8192)[5] ?? 'short', strlen(fread($h, 8192)), md5(fread($h, 8192)); }",
    "if ($h = @fopen(@F, 'r')) { echo new Late(fread($h, 8192)), fread($h, 8192); }",
    "if ($h = @fopen(@F, 'r')) { $x = &$y; $y = fread($h, 8192); echo $x; unset($x, $y); echo fread($h, 8192); if (strlen((string) $s) > @Z) { exit(fread($h, 8192)); } }",
    "if ($h = @fopen(@F, 'r')) { echo $c = fread($h, 8192); echo $c .= fread($h, 8192); echo $c; }",
    "if ($h = @fopen(@F, 'r')) { $w = fopen(@F, 'c'); echo fread($h, 8192); fwrite($w, 'MARK'); fflush($w); echo fread($h, 8192); unset($w); }",
    "declare(ticks=1) { if ($h = @fopen(@F, 'r')) { while (!feof($h)) { echo fread($h, 8192); } } }",
    "if ($h = @fopen(@F, 'r')) { switch (true) { case true: echo fread($h, 16384); default: echo match (true) { default => fread($h, 8192) }; } }",
    "if ($h = @fopen(@F, 'r')) { stream_filter_append($h, 'string.toupper'); while (!feof($h)) { echo fread($h, 8192); } }",
    "if ($h = @fopen(@F, 'r')) { while (@ob_end_flush()); for ($k = 0; $k < 300 && !feof($h); $k++) { echo fread($h, 8192); } }",
    "if (!function_exists('read~')) { function read~($h) { return fread($h, 8192); } } if ($h = @fopen(@F, 'r')) { for ($k = 0; $k < 200 && !feof($h); $k++) { echo read~($h); } }",
];

const VALUES: &[&str] = &[
    "$s = @C;",
    "$t = @C;",
    "$s = @C;",
    "$t = $s;",
    "[$s, $t] = [$t, $s];",
    "$s = substr((string) $s, @N);",
    "$t = substr((string) $s, @N, @N);",
    "if (strlen($s . $t) < 300000) { $s .= $t; }",
    "if (strlen((string) $s) < 300000) { $s .= 'more'; }",
    "if (is_string($s) && isset($s[3])) { $s[3] = '#'; }",
    "$a = [(string) $s => $t]; $a[(string) $s] .= 'z'; echo md5(serialize($a)); $t = key($a);",
    "$t = '@T';",
    "$s = unserialize(serialize($s));",
    "static $kept = []; $kept[] = $s;",
    "$o = new Late(@C);",
    "unset($o, $kept); unset($h);",
    "$r = &$s; $r = $t;",
    "$t = (string) ob_get_contents();",
];

/// Expressions whose value is a string, or false.
const CALLS: &[&str] = &[
    "file_get_contents(@F)",
    "file_get_contents(@F)",
    "file_get_contents(@F)",
    "@file_get_contents(@F)",
    "file_get_contents(@F, false, null, 0)",
    "file_get_contents(@F, offset: 5, length: 5000)",
    "substr((string) file_get_contents(@F), @N)",
    "str_replace('<7>', '[7]', (string) file_get_contents(@F))",
    "strtoupper((string) file_get_contents(@F))",
    "trim((string) file_get_contents(@F))",
    "strval(file_get_contents(@F))",
    "implode('', [file_get_contents(@F)])",
    "htmlspecialchars((string) file_get_contents(@F))",
    "preg_replace('/\\d+/', '#', (string) file_get_contents(@F))",
    "sprintf('%s', file_get_contents(@F))",
    "json_encode(file_get_contents(@F))",
    "strrev((string) $s)",
    "'@T'",
    "($s . '')",
    "fread(fopen(__FILE__, 'r'), 10000)",
    "(is_file(@F) ? fread(fopen(@F, 'r'), @Z + 1) : 'none')",
    "substr(str_repeat('filler ', 12000) . $s, @Z)",
];

const BUFFERS: &[&str] = &[
    "ob_start();",
    "ob_start();",
    "ob_start(fn ($b) => strrev($b));",
    "ob_start(fn ($b, $mode) => \"[$mode:\" . strlen($b) . \"]$b\");",
    "ob_start(null, @Z);",
    "ob_start(fn ($b) => strtoupper($b), @Z);",
    "ob_start(null, 0, 0);",
    "ob_start(fn () => false);",
    "ob_start('md5', 5000);",
    "@ob_end_flush();",
    "ob_end_flush();",
    "@ob_flush();",
    "@ob_clean();",
    "@ob_end_clean();",
    "flush();",
    "flush();",
    "echo strtolower((string) ob_get_clean());",
    "$t = ob_get_flush();",
    "for ($n = ob_get_level(); $n > 0; $n--) { @ob_end_flush(); }",
    "ob_implicit_flush(true);",
    "ob_implicit_flush(false);",
    "echo json_encode([ob_get_level(), ob_get_length(), ob_get_status(true)]);",
    "echo json_encode([headers_sent($file, $line), $line]);",
    "output_add_rewrite_var('v', '1');",
];

const CHANGES: &[&str] = &[
    "file_put_contents(@F, str_repeat('new ', @Z >> 2));",
    "file_put_contents(@F, 'appended', FILE_APPEND | LOCK_EX);",
    "file_put_contents(@F, $s);",
    "file_put_contents(@F, strrev((string) $s));",
    "if ($h = @fopen(@F, 'r+')) { ftruncate($h, @Z); fclose($h); }",
    "if ($h = @fopen(@F, 'r+')) { fwrite($h, 'OVERWRITTEN'); fclose($h); }",
    "$w = @fopen(@F, 'a'); if ($w) { fwrite($w, 'kept open'); }",
    "unset($w);",
    "unlink(@F);",
    "@rename(@F, @F);",
    "copy(@F, @F);",
    "file_put_contents('new~', str_repeat(\"fresh\\n\", @Z)); rename('new~', @F);",
    "@unlink('link~'); symlink(basename(@F), 'link~'); readfile('link~');",
    "if (is_file(@F)) { touch(@F, 1000000000); }",
    "clearstatcache(); echo @filesize(@F), ';';",
];

const HEADERS: &[&str] = &[
    "header('X-Sum: ' . md5((string) $s));",
    "header('X-Twice: 1', false); header('X-Twice: 2', false);",
    "http_response_code(404);",
    "http_response_code(203);",
    "setcookie('c', substr(md5((string) $s), 0, 8));",
    "header('Content-Type: text/plain');",
    "header_remove('X-Sum');",
    "header_register_callback(function () { header('X-Callback: 1'); });",
    "header_register_callback(function () { echo 'from the header callback'; });",
    "echo json_encode(headers_list());",
];

const ENDS: &[&str] = &[
    "register_shutdown_function(function () use ($s) { echo 'shutdown', $s; });",
    "register_shutdown_function(function () { readfile(@F); @S });",
    "set_error_handler(function ($n, $m) { echo \"[$n]\", strlen($m); return true; });",
    "if (strlen((string) $s) > @Z) { exit($s); }",
    "if (strlen((string) $s) < @N) { exit(3); }",
    "if (strlen((string) $t) > @Z) { throw new RuntimeException($t); }",
    "if (strlen((string) $t) > @Z) { undefined_function($t); }",
    "ob_start(function ($b) { throw new LogicException('in a callback'); });",
];

const COMPOUND: &[&str] = &[
    "for ($i = 0; $i < 3; $i++) { @S }",
    "(function () use (&$s, &$t) { @S @S })();",
    "try { @S @S } catch (Throwable $e) { echo get_class($e), md5($e->getMessage()); } finally { @S }",
    "if (strlen((string) $s) > @Z) { @S } else { @S }",
    "ob_start(); @S @S @ob_end_flush();",
    "ob_start(); @S echo strtoupper((string) ob_get_clean());",
];

fn statement(random: &mut Random, depth: usize) -> String {
    let kind = random.below(if depth < 2 { 100 } else { 91 });
    let from = match kind {
        0..32 => OUTPUT,
        32..40 => MUCH,
        40..46 => CHUNKS,
        46..62 => VALUES,
        62..72 => BUFFERS,
        72..82 => CHANGES,
        82..88 => HEADERS,
        88..91 => ENDS,
        _ => COMPOUND,
    };
    let template = random.pick(from);
    fill(random, template, depth)
}

fn fill(random: &mut Random, template: &str, depth: usize) -> String {
    let mut filled = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('@') {
        filled.push_str(before);
        let mut taken = 1;
        match after.as_bytes().first() {
            Some(b'F') => filled.push_str(&random.file()),
            Some(b'N') => filled.push_str(&random.pick(&NUMBERS).to_string()),
            Some(b'Z') => filled.push_str(&random.size().to_string()),
            Some(b'L') => filled.push_str(&random.large().to_string()),
            Some(b'T') => {
                let size = random.size();
                filled.push_str(&text(random.pick(&["T", "U", "V"]), size));
            }
            Some(b'C') => {
                let call = random.pick(CALLS);
                filled.push_str(&fill(random, call, depth));
            }
            Some(b'S') => filled.push_str(&format!(" {} ", statement(random, depth + 1))),
            // PHP's own, which says: no warnings.
            _ => {
                filled.push('@');
                taken = 0;
            }
        }
        rest = &after[taken..];
    }
    filled.push_str(rest);
    filled
}
