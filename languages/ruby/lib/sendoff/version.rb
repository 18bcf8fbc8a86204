# frozen_string_literal: true

module Sendoff
  VERSION = '0.1.0'
end
