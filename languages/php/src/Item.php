<?php

declare(strict_types=1);

namespace Sendoff\Cache;

use Symfony\Contracts\Cache\ItemInterface;

/**
 * What a callback says of the value that it makes. Parameters have no types, so that it fits all
 * versions of the interface.
 *
 * @internal
 */
final class Item implements ItemInterface
{
    private mixed $value = null;
    private int $ttl;
    /** @var string[] */
    private array $tags = [];

    public function __construct(private readonly string $key, private readonly int $default)
    {
        $this->ttl = $default;
    }

    public function getKey(): string
    {
        return $this->key;
    }

    public function get(): mixed
    {
        return $this->value;
    }

    public function isHit(): bool
    {
        return false;
    }

    public function set($value): static
    {
        $this->value = $value;

        return $this;
    }

    public function expiresAt($expiration): static
    {
        $this->ttl = null === $expiration ? $this->default : $expiration->getTimestamp() - time();

        return $this;
    }

    public function expiresAfter($time): static
    {
        if ($time instanceof \DateInterval) {
            return $this->expiresAt((new \DateTimeImmutable())->add($time));
        }
        $this->ttl = $time ?? $this->default;

        return $this;
    }

    public function tag($tags): static
    {
        foreach (is_iterable($tags) ? $tags : [$tags] as $tag) {
            $this->tags[] = (string) $tag;
        }

        return $this;
    }

    public function getMetadata(): array
    {
        return [];
    }

    public function ttl(): int
    {
        return $this->ttl;
    }

    /** @return string[] */
    public function tags(): array
    {
        return $this->tags;
    }
}
