<?php

declare(strict_types=1);

namespace Sendoff\Cache;

use Psr\SimpleCache\InvalidArgumentException;

final class InvalidKey extends \InvalidArgumentException implements InvalidArgumentException
{
}
