<?php

// The front controller of an application of Laravel, in one file: its settings, its routes, its kernel.

use Illuminate\Contracts\Debug\ExceptionHandler;
use Illuminate\Contracts\Http\Kernel as HttpKernel;
use Illuminate\Foundation\Application;
use Illuminate\Foundation\Bootstrap\BootProviders;
use Illuminate\Foundation\Bootstrap\HandleExceptions;
use Illuminate\Foundation\Bootstrap\RegisterFacades;
use Illuminate\Foundation\Bootstrap\RegisterProviders;
use Illuminate\Foundation\Exceptions\Handler;
use Illuminate\Foundation\Http\Kernel;
use Illuminate\Http\Request;
use Illuminate\Routing\Router;

require_once 'Illuminate/autoload.php';

class AppKernel extends Kernel
{
    protected $bootstrappers = [HandleExceptions::class, RegisterFacades::class, RegisterProviders::class, BootProviders::class];

    protected $middlewareGroups = ['web' => [
        Illuminate\Cookie\Middleware\EncryptCookies::class,
        Illuminate\Cookie\Middleware\AddQueuedCookiesToResponse::class,
        Illuminate\Session\Middleware\StartSession::class,
        Illuminate\Foundation\Http\Middleware\VerifyCsrfToken::class,
        Illuminate\Routing\Middleware\SubstituteBindings::class,
    ]];

    protected $routeMiddleware = ['cache.headers' => Illuminate\Http\Middleware\SetCacheHeaders::class];
}

$app = new Application(dirname(__DIR__));
$app->detectEnvironment(fn () => 'production');
$storage = $app->storagePath();
$app->instance('config', new Illuminate\Config\Repository([
    'app' => [
        'name' => 'Test', 'env' => 'production', 'debug' => false, 'key' => str_repeat('k', 32), 'cipher' => 'AES-256-CBC',
        'timezone' => 'UTC', 'locale' => 'en', 'fallback_locale' => 'en', 'aliases' => [],
        'providers' => [
            Illuminate\Cookie\CookieServiceProvider::class, Illuminate\Encryption\EncryptionServiceProvider::class,
            Illuminate\Filesystem\FilesystemServiceProvider::class, Illuminate\Foundation\Providers\FoundationServiceProvider::class,
            Illuminate\Session\SessionServiceProvider::class, Illuminate\Translation\TranslationServiceProvider::class,
            Illuminate\Validation\ValidationServiceProvider::class, Illuminate\View\ViewServiceProvider::class,
        ],
    ],
    'filesystems' => ['default' => 'local', 'disks' => ['local' => ['driver' => 'local', 'root' => "$storage/app"]]],
    'logging' => ['default' => 'single', 'channels' => ['single' => ['driver' => 'single', 'path' => "$storage/logs/laravel.log"]]],
    'session' => [
        'driver' => 'file', 'files' => "$storage/framework/sessions", 'cookie' => 'laravel_session', 'path' => '/', 'lifetime' => 120,
        'expire_on_close' => false, 'lottery' => [0, 100], 'http_only' => true, 'same_site' => 'lax', 'domain' => null, 'secure' => false,
        'encrypt' => false,
    ],
    'view' => ['paths' => [], 'compiled' => "$storage/framework/views"],
]));
$app->singleton(HttpKernel::class, AppKernel::class);
$app->singleton(ExceptionHandler::class, Handler::class);
$kernel = $app->make(HttpKernel::class);

$router = $app->make(Router::class);
$router->group(['middleware' => 'web'], function (Router $router) {
    $router->get('/', fn (Request $request) => '<html><title>home</title>' . $request->method() . ' ' . $request->path() . '</html>');
    $router->get('/posts/{id}', fn (int $id) => "<html><title>post $id</title></html>")->where('id', '[0-9]+');
    $router->any('/any/{path}', fn (Request $request, string $path) => [
        $path, $request->path(), $request->getRequestUri(), $request->query(), $request->method(), $request->root(),
    ])->where('path', '.+');
    $router->get('/form', fn (Request $request) => '<html><form method="post"><input type="hidden" name="_token" value="'
        . $request->session()->token() . '"><input name="name"></form></html>');
    $router->post('/form', function (Request $request) {
        $request->validate(['name' => 'required|max:20']);
        return redirect('/any/' . $request->input('name'));
    });
    $router->post('/upload', function (Request $request) {
        $file = $request->file('file');
        return $file === null ? ['none'] : [$file->getClientOriginalName(), $file->getSize(), $file->get(), $request->except('file', '_token')];
    });
    $router->get('/visits', function (Request $request) {
        $request->session()->increment('visits');
        return 'visit ' . $request->session()->get('visits');
    });
    $router->get('/download', fn () => response()->download(base_path('report.txt'), 'a report.txt'));
    $router->get('/show', fn () => response()->file(base_path('report.txt')));
    $router->get('/stream', fn () => response()->stream(function () {
        for ($line = 0; $line < 100; $line++) {
            echo "line $line\n";
            flush();
        }
    }, 200, ['Content-Type' => 'text/plain']));
    $router->get('/cookie', fn () => response('a cookie')->cookie('taste', 'sweet', 10));
    $router->get('/cached', fn () => 'cached')->middleware('cache.headers:public;max_age=600;etag');
    $router->get('/forbidden', fn () => abort(403));
    $router->get('/gone', fn () => abort(410));
    $router->get('/wrong', fn () => throw new RuntimeException('it is wrong'));
    $router->redirect('/old', '/posts/1', 301);
});
$router->match(['get', 'post', 'put', 'delete'], '/api/items', fn (Request $request) => response()->json(
    [$request->method(), $request->json()->all()],
    $request->isMethod('post') ? 201 : 200,
));

$request = Request::capture();
$response = $kernel->handle($request)->send();
$kernel->terminate($request, $response);
