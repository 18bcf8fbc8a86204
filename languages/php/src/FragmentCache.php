<?php

declare(strict_types=1);

namespace Sendoff\Cache;

use Symfony\Contracts\Cache\TagAwareCacheInterface;

/**
 * Symfony's cache contracts, which Twig's tag "cache" uses. While a process makes a value, the others
 * that ask for it wait, or get the old one.
 */
final class FragmentCache implements TagAwareCacheInterface
{
    private readonly Store $store;

    /** @param int $ttl seconds for values whose callback says nothing */
    public function __construct(string $prefix = '', private readonly int $ttl = 86400)
    {
        $this->store = new Store($prefix);
    }

    public function get(string $key, callable $callback, ?float $beta = null, ?array &$metadata = null): mixed
    {
        $metadata = [];
        $item = new Item($key, $this->ttl);
        if (!Store::exists()) {
            $save = false;

            return $callback($item, $save);
        }
        if (\INF === $beta) {
            $this->delete($key);
        }
        $made = null;
        $text = sendoff_fragment_string($this->store->name($key), null, function () use ($key, $callback, $item, &$made): string {
            $save = true;
            $made = [$callback($item, $save)];
            $text = Store::encode($made[0]);
            if ($save) {
                $this->store->store($key, $item->ttl(), $text, $item->tags());
            }

            return $text;
        });

        return $made ? $made[0] : Store::decode($text);
    }

    public function delete(string $key): bool
    {
        $this->store->delete($key);

        return true;
    }

    /** @param string[] $tags */
    public function invalidateTags(array $tags): bool
    {
        $this->store->purge($tags);

        return true;
    }

    public function clear(): bool
    {
        $this->store->clear();

        return true;
    }
}
