<?php

// A worker script in the way of Symfony's runtime: it reads the same variables, and calls the same functions in the same order.

require __DIR__ . '/app.php';

final class Runner
{
    public function __construct(private App $kernel, private int $loopMax)
    {
    }

    public function run(): int
    {
        // A client that leaves must not end the loop.
        ignore_user_abort(true);
        $environment = [];
        foreach ($_SERVER as $name => $value) {
            if (!str_starts_with($name, 'HTTP_')) {
                $environment[$name] = $value;
            }
        }
        $environment['APP_RUNTIME_MODE'] = 'web=1&worker=1';
        $answered = null;
        $handle = function () use ($environment, &$answered): void {
            $_SERVER += $environment;
            $answered = $this->kernel->handle($_SERVER, $_GET, $_POST);
        };
        for ($loops = 0, $goesOn = true; $goesOn && ($this->loopMax <= 0 || $loops < $this->loopMax); $loops++) {
            $answered = null;
            $goesOn = frankenphp_handle_request($handle);
            if ($answered !== null) {
                $this->kernel->terminate($answered);
            }
            gc_collect_cycles();
        }
        return 0;
    }
}

if ($_SERVER['FRANKENPHP_WORKER'] ?? false) {
    exit((new Runner(new App(), (int) ($_SERVER['FRANKENPHP_LOOP_MAX'] ?? 500)))->run());
}
(new App())->handle($_SERVER, $_GET, $_POST);
