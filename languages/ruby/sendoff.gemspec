# frozen_string_literal: true

require_relative 'lib/sendoff/version'

Gem::Specification.new do |spec|
  spec.name = 'sendoff'
  spec.version = Sendoff::VERSION
  spec.summary = 'Serves Rack applications over FastCGI and hands files over to the web server'
  spec.description = 'A Rack handler on libsendoff. Behind Sendoff, files that an application sends leave without being ' \
                     'read; other web servers get ordinary FastCGI.'
  spec.authors = ['The Sendoff authors']
  spec.license = 'Apache-2.0'
  spec.required_ruby_version = '>= 3.1'
  # The library inside is compiled for this machine's kind.
  spec.platform = Gem::Platform::CURRENT
  spec.files = Dir.glob('{lib,ext}/**/*.{rb,c,h,a}', base: __dir__) + %w[README.md LICENSE]
  spec.extensions = ['ext/sendoff/extconf.rb']
  spec.add_dependency 'rack', '>= 2.2', '< 4'
end
