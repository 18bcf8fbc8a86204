<?php

declare(strict_types=1);

namespace Sendoff\Cache;

use Psr\SimpleCache\CacheInterface;

/** PSR-16. Parameters have no types, so that it fits all versions of the interface. */
final class SimpleCache implements CacheInterface
{
    private readonly Store $store;

    /** @param int $ttl seconds for values that are set without a time */
    public function __construct(string $prefix = '', private readonly int $ttl = 86400)
    {
        $this->store = new Store($prefix);
    }

    public function get($key, $default = null): mixed
    {
        $text = $this->store->fetch(self::checked($key));

        return null === $text ? $default : Store::decode($text);
    }

    public function set($key, $value, $ttl = null): bool
    {
        $seconds = $this->seconds($ttl);
        if ($seconds <= 0) {
            return $this->delete($key);
        }

        return $this->store->store(self::checked($key), $seconds, Store::encode($value));
    }

    public function delete($key): bool
    {
        $this->store->delete(self::checked($key));

        return true;
    }

    public function clear(): bool
    {
        $this->store->clear();

        return true;
    }

    public function getMultiple($keys, $default = null): iterable
    {
        $values = [];
        foreach (self::listed($keys) as $key) {
            $values[$key] = $this->get($key, $default);
        }

        return $values;
    }

    public function setMultiple($values, $ttl = null): bool
    {
        $all = true;
        foreach (self::listed($values) as $key => $value) {
            $all = $this->set(\is_int($key) ? (string) $key : $key, $value, $ttl) && $all;
        }

        return $all;
    }

    public function deleteMultiple($keys): bool
    {
        foreach (self::listed($keys) as $key) {
            $this->delete($key);
        }

        return true;
    }

    public function has($key): bool
    {
        return null !== $this->store->fetch(self::checked($key));
    }

    private function seconds(mixed $ttl): int
    {
        if ($ttl instanceof \DateInterval) {
            $now = new \DateTimeImmutable();

            return $now->add($ttl)->getTimestamp() - $now->getTimestamp();
        }

        return $ttl ?? $this->ttl;
    }

    private static function checked(mixed $key): string
    {
        if (!\is_string($key) || '' === $key || false !== strpbrk($key, '{}()/\@:')) {
            throw new InvalidKey('A key is a string with at least one character, and none of {}()/\@:');
        }

        return $key;
    }

    private static function listed(mixed $all): iterable
    {
        return is_iterable($all) ? $all : throw new InvalidKey('An array or a Traversable is needed');
    }
}
