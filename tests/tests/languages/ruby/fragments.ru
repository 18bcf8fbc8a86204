# frozen_string_literal: true

# An application whose pages are made of fragments.
require 'rack'
require 'sendoff/cache_store'

FOLDER = ENV.fetch('FOLDER')

def runs
  File.open("#{FOLDER}/runs", 'ab') { |file| file.write('.') }
  File.size("#{FOLDER}/runs")
end

STORE = Sendoff::CacheStore.new

def one(asked)
  Sendoff.fragment(asked.fetch('key', 'k'), ttl: asked.fetch('ttl', '600'), tags: %w[post-1 all]) do
    File.read("#{FOLDER}/root/pipe") if asked.key?('wait')
    exit!(9) if asked.key?('dies')
    raise 'no fragment' if asked.key?('fails')

    "run #{runs}#{'x' * asked.fetch('size', '0').to_i}"
  end
end

def value
  steps = [STORE.read('a'), STORE.write('a', { x: 1 }), STORE.read('a'), STORE.exist?('a')]
  steps << STORE.fetch('b', expires_in: 60, tags: ['post-2']) { 7 }
  steps << STORE.fetch('b') { 8 }
  Sendoff.purge_fragments(['post-2'])
  steps << STORE.fetch('b') { 8 }
  steps << STORE.write('a', Random.bytes(2 << 20)) << STORE.read('a')
  steps << STORE.delete('b') << STORE.delete('b') << STORE.read('b')
  STORE.clear
  steps.inspect
end

run(lambda do |env|
  asked = Rack::Utils.parse_query(env['QUERY_STRING'])
  body = case env['PATH_INFO']
         when '/one' then one(asked)
         when '/three' then (0..2).map { |n| Sendoff.fragment("k#{n}", ttl: 600) { "#{n} " } }.join
         when '/purge' then Sendoff.purge_fragments(asked['tag'] && [asked['tag']]).to_s
         when '/delete' then Sendoff.delete_fragment(asked['key']).to_s
         when '/fetch' then Sendoff.fetch_fragment('k') || 'none'
         when '/value' then value
         else "hello #{Process.pid}"
         end
  [200, { 'Content-Type' => 'text/plain' }, [body]]
end)
