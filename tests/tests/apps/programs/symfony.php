<?php

// The front controller of an application of Symfony's micro kernel.

use Symfony\Bundle\FrameworkBundle\FrameworkBundle;
use Symfony\Bundle\FrameworkBundle\Kernel\MicroKernelTrait;
use Symfony\Component\DependencyInjection\Loader\Configurator\ContainerConfigurator;
use Symfony\Component\HttpFoundation\BinaryFileResponse;
use Symfony\Component\HttpFoundation\Cookie;
use Symfony\Component\HttpFoundation\JsonResponse;
use Symfony\Component\HttpFoundation\RedirectResponse;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\Response;
use Symfony\Component\HttpFoundation\ResponseHeaderBag;
use Symfony\Component\HttpFoundation\StreamedResponse;
use Symfony\Component\HttpKernel\Exception\AccessDeniedHttpException;
use Symfony\Component\HttpKernel\Kernel as BaseKernel;
use Symfony\Component\Routing\Generator\UrlGeneratorInterface;
use Symfony\Component\Routing\Loader\Configurator\RoutingConfigurator;

require_once 'Symfony/Bundle/FrameworkBundle/autoload.php';

class Kernel extends BaseKernel
{
    use MicroKernelTrait;

    public function registerBundles(): iterable
    {
        yield new FrameworkBundle();
    }

    public function getProjectDir(): string
    {
        return dirname(__DIR__);
    }

    protected function configureContainer(ContainerConfigurator $container): void
    {
        $container->extension('framework', [
            'secret' => 'a secret of the test',
            'session' => ['handler_id' => null, 'storage_factory_id' => 'session.storage.factory.native'],
            'router' => ['utf8' => true],
        ]);
    }

    protected function configureRoutes(RoutingConfigurator $routes): void
    {
        foreach ([
            'home' => ['/', 'home', ['GET']],
            'post' => ['/blog/{id<\d+>}', 'post', ['GET']],
            'any' => ['/any/{path}', 'any', []],
            'form' => ['/form', 'form', ['GET', 'POST']],
            'upload' => ['/upload', 'upload', ['POST']],
            'file' => ['/download/{how}', 'download', ['GET']],
            'stream' => ['/stream', 'stream', ['GET']],
            'json' => ['/api/items', 'items', ['GET', 'POST', 'PUT', 'DELETE']],
            'visits' => ['/visits', 'visits', ['GET']],
            'login' => ['/login', 'login', ['POST']],
            'admin' => ['/admin', 'admin', ['GET']],
            'old' => ['/old', 'old', ['GET']],
            'cached' => ['/cached', 'cached', ['GET']],
            'wrong' => ['/wrong', 'wrong', ['GET']],
        ] as $name => [$path, $method, $methods]) {
            $route = $routes->add($name, $path)->controller('kernel::' . $method)->methods($methods);
            if ($name === 'any') {
                $route->requirements(['path' => '.+']);
            }
        }
    }

    public function home(Request $request): Response
    {
        return new Response('<html><title>home</title><a href="' . $this->url('post', ['id' => 7]) . '">7</a>'
            . $request->getMethod() . ' ' . $request->getBaseUrl() . ' ' . $request->getPathInfo() . '</html>');
    }

    public function post(int $id): Response
    {
        return new Response("<html><title>post $id</title></html>");
    }

    public function any(Request $request, string $path): Response
    {
        return new JsonResponse([
            $path, $request->getPathInfo(), $request->getRequestUri(), $request->query->all(), $request->getMethod(),
            $request->getSchemeAndHttpHost(), $request->getScriptName(),
        ]);
    }

    public function form(Request $request): Response
    {
        if ($request->isMethod('POST')) {
            return new RedirectResponse($this->url('any', ['path' => $request->request->get('name', 'nobody')]), 303);
        }
        return new Response('<html><form method="post"><input name="name"></form></html>');
    }

    public function upload(Request $request): Response
    {
        $file = $request->files->get('file');
        return new JsonResponse($file === null ? ['none'] : [
            $file->getClientOriginalName(), $file->getClientMimeType(), $file->getSize(), $file->getContent(), $request->request->all(),
        ]);
    }

    public function download(string $how): Response
    {
        $response = new BinaryFileResponse($this->getProjectDir() . '/report.txt', 200, [], true,
            $how === 'attachment' ? ResponseHeaderBag::DISPOSITION_ATTACHMENT : null, true);
        return $response;
    }

    public function stream(): Response
    {
        return new StreamedResponse(function () {
            for ($line = 0; $line < 100; $line++) {
                echo "line $line\n";
                flush();
            }
        }, 200, ['Content-Type' => 'text/plain']);
    }

    public function items(Request $request): Response
    {
        return new JsonResponse([$request->getMethod(), json_decode($request->getContent() ?: 'null', true)],
            $request->isMethod('POST') ? 201 : 200);
    }

    public function visits(Request $request): Response
    {
        $session = $request->getSession();
        $session->set('visits', $session->get('visits', 0) + 1);
        return new Response('visit ' . $session->get('visits'));
    }

    public function login(Request $request): Response
    {
        if ($request->request->get('password') !== 'secret') {
            return new Response('wrong', 401, ['WWW-Authenticate' => 'Form']);
        }
        $response = new RedirectResponse($this->url('admin'));
        $response->headers->setCookie(Cookie::create('user', 'admin'));
        return $response;
    }

    public function admin(Request $request): Response
    {
        if ($request->cookies->get('user') !== 'admin') {
            throw new AccessDeniedHttpException('who are you?');
        }
        return new Response('welcome');
    }

    public function old(): Response
    {
        return new RedirectResponse($this->url('post', ['id' => 1]), 301);
    }

    public function cached(Request $request): Response
    {
        $response = new Response('cached');
        $response->setEtag(md5('cached'))->setPublic()->setMaxAge(600);
        $response->setLastModified(new DateTimeImmutable('2026-01-01 00:00:00'));
        $response->isNotModified($request);
        return $response;
    }

    public function wrong(): Response
    {
        throw new RuntimeException('it is wrong');
    }

    private function url(string $name, array $parameters = []): string
    {
        return $this->getContainer()->get('router')->generate($name, $parameters, UrlGeneratorInterface::ABSOLUTE_PATH);
    }
}

$kernel = new Kernel('prod', false);
$request = Request::createFromGlobals();
$response = $kernel->handle($request);
$response->send();
$kernel->terminate($request, $response);
