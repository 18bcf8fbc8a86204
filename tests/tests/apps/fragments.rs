//! Sendoff's package for PHP's cache interfaces (languages/php), with Debian's Twig and Symfony.

use std::path::Path;

use sendoff_tests::{Server, Site};

/// Loads the package, and Debian's libraries. `run()` counts runs.
const PRELUDE: &str = "<?php
require_once 'Twig/autoload.php';
require_once 'Twig/Extra/Cache/autoload.php';
require_once 'Symfony/Component/Cache/autoload.php';
// The autoloader of newer packages does not find this class, whose name is the byte 0xA9.
@include_once 'Symfony/Component/Cache/Traits/ValueWrapper.php';
require_once 'Psr/SimpleCache/autoload.php';
spl_autoload_register(function ($class) {
    if (str_starts_with($class, 'Sendoff\\\\Cache\\\\')) require 'PACKAGE/' . substr($class, 14) . '.php';
});
function run() { file_put_contents(__DIR__ . '/../runs', '.', FILE_APPEND);
    return 'run ' . strlen(file_get_contents(__DIR__ . '/../runs')); }
";

fn serve(scripts: &[(&str, &str)]) -> (Site, Server) {
    let site = Site::new();
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../languages/php/src");
    let prelude = PRELUDE.replace("PACKAGE", package.to_str().unwrap());
    for (name, code) in scripts {
        site.write(name, format!("{prelude}{code}"));
    }
    let server = Server::start(site.root(), &["--workers", "3"]);
    (site, server)
}

const TWIG: &str = r#"
$twig = new Twig\Environment(new Twig\Loader\ArrayLoader(['page' =>
    "<h1>{{ title }}</h1>{% cache 'menu;' ~ title ttl(600) tags(['menu', 'all']) %}<ul>{{ run() }}</ul>{% endcache %}.",
]));
$twig->addFunction(new Twig\TwigFunction('run', 'run'));
$twig->addExtension(new Twig\Extra\Cache\CacheExtension());
$twig->addRuntimeLoader(new class implements Twig\RuntimeLoader\RuntimeLoaderInterface {
    public function load($class) {
        return $class === Twig\Extra\Cache\CacheRuntime::class
            ? new Twig\Extra\Cache\CacheRuntime(new Sendoff\Cache\FragmentCache('twig')) : null;
    }
});
echo $twig->render('page', ['title' => $_GET['title'] ?? 'a']);
"#;

#[test]
fn twig_keeps_parts_of_templates() {
    let purge = "(new Sendoff\\Cache\\FragmentCache('twig'))->invalidateTags(['menu']);";
    let (_site, server) = serve(&[("page.php", TWIG), ("purge.php", purge)]);
    let page = |title: &str| server.get(&format!("/page.php?title={title}")).text();
    for _ in 0..6 {
        assert_eq!(page("a"), "<h1>a</h1><ul>run 1</ul>.");
    }
    assert_eq!(page("b"), "<h1>b</h1><ul>run 2</ul>.");
    assert_eq!(server.get("/purge.php").text(), "");
    assert_eq!([page("a"), page("a")], ["<h1>a</h1><ul>run 3</ul>."; 2]);
}

const SIMPLE: &str = r#"
$cache = new Sendoff\Cache\SimpleCache('x');
$other = new Sendoff\Cache\SimpleCache('y');
$values = ['text' => "a\0b", 'int' => 7, 'list' => [1, [2]], 'null' => null, 'false' => false, '' . 'date' => new DateTime('@5')];
$all = [$cache->setMultiple($values), $other->set('text', 'other'), $cache->getMultiple(array_keys($values)) == $values];
$all[] = [$cache->get('none', 5), $cache->has('none'), $cache->has('null'), $other->get('int')];
$all[] = [$cache->delete('int'), $cache->get('int'), $cache->set('text', 1, 0), $cache->has('text')];
$all[] = [$cache->set('i', 1, new DateInterval('PT5S')), $cache->get('i'), $cache->clear(), $cache->get('i'), $other->get('text')];
try { $cache->get('a{b'); } catch (Psr\SimpleCache\InvalidArgumentException $e) { $all[] = get_class($e); }
$pool = new Symfony\Component\Cache\Adapter\TagAwareAdapter(new Symfony\Component\Cache\Adapter\Psr16Adapter($cache));
$make = function ($item) { $item->tag(['t']); return run(); };
$all[] = [$pool->get('k', $make), $pool->get('k', $make), $pool->invalidateTags(['t']), $pool->get('k', $make)];
$fragments = new Sendoff\Cache\FragmentCache('z');
$make = function ($item, &$save) { $item->expiresAfter(60); $save = $_GET['save'] ?? true; return [run()]; };
$all[] = [$fragments->get('k', $make), $fragments->get('k', $make), $fragments->get('k', $make, INF), $fragments->delete('k'), $fragments->get('k', $make)];
echo json_encode($all);
"#;

#[test]
fn values_are_kept_as_psr_16_and_symfony_say() {
    let (_site, server) = serve(&[("page.php", SIMPLE)]);
    let expected = "[true,true,true,[5,false,true,null],[true,null,true,false],[true,1,true,null,\"other\"],\
                    \"Sendoff\\\\Cache\\\\InvalidKey\",[\"run 1\",\"run 1\",true,\"run 2\"],\
                    [[\"run 3\"],[\"run 3\"],[\"run 4\"],true,[\"run 5\"]]]";
    assert_eq!(server.get("/page.php").text(), expected);
}
