<?php

// An application for both: what it keeps in memory, and what each request gets.

final class App
{
    private int $handled = 0;

    public function handle(array $server, array $query, array $post): string
    {
        $this->handled++;
        header('X-Handled: ' . $this->handled);
        header('X-Pid: ' . getmypid());
        if (isset($query['throw'])) {
            throw new LogicException('thrown');
        }
        echo json_encode([$server['REQUEST_METHOD'], $server['REQUEST_URI'], $query, $post, $server['HTTP_X_NAME'] ?? null]);
        return $server['REQUEST_URI'];
    }

    public function terminate(string $what): void
    {
        file_put_contents(__DIR__ . '/terminated', "$what\n", FILE_APPEND);
    }
}
