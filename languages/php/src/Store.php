<?php

declare(strict_types=1);

namespace Sendoff\Cache;

/**
 * Values among the fragments of the pool, under names with a prefix. Without Sendoff, such as on the
 * command line, nothing is ever kept.
 *
 * @internal
 */
final class Store
{
    /** A string is kept as it is, behind this letter; other values are serialized. */
    private const TEXT = 't';
    private const SERIALIZED = 's';

    public function __construct(private readonly string $prefix)
    {
    }

    public static function exists(): bool
    {
        return \function_exists('sendoff_fragment_store');
    }

    public function name(string $key): string
    {
        return $this->prefix . "\0" . $key;
    }

    public static function encode(mixed $value): string
    {
        return \is_string($value) ? self::TEXT . $value : self::SERIALIZED . serialize($value);
    }

    public static function decode(string $text): mixed
    {
        $content = substr($text, 1);

        return self::TEXT === $text[0] ? $content : unserialize($content);
    }

    /** The kept text of a value; null: there is none. */
    public function fetch(string $key): ?string
    {
        return self::exists() ? sendoff_fragment_fetch($this->name($key)) : null;
    }

    /** @param string[] $tags */
    public function store(string $key, int $ttl, string $text, array $tags = []): bool
    {
        return self::exists() && sendoff_fragment_store($this->name($key), $ttl, $text, [...$tags, $this->tag()]);
    }

    public function delete(string $key): void
    {
        if (self::exists()) {
            sendoff_fragment_delete($this->name($key));
        }
    }

    public function clear(): void
    {
        $this->purge([$this->tag()]);
    }

    /** @param string[] $tags */
    public function purge(array $tags): void
    {
        if (self::exists()) {
            sendoff_fragment_purge($tags);
        }
    }

    /** All values with the prefix have this tag. */
    private function tag(): string
    {
        return "\0" . $this->prefix;
    }
}
