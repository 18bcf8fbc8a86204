# frozen_string_literal: true

# A site on Debian's Sinatra for tests/tests/languages/ruby.rs.
require 'sinatra/base'

FOLDER = ENV.fetch('FOLDER')

class Shop < Sinatra::Base
  set :environment, :production
  set :public_folder, FOLDER
  set :sessions, key: 'shop', secret: 'a' * 64
  set :show_exceptions, false
  set :raise_errors, false

  template(:page) { '<h1><%= @title %></h1><ul><% @items.each do |item| %><li><%= item %></li><% end %></ul>' }

  before { session[:basket] ||= [] }

  get('/') do
    @title = 'Basket'
    @items = session[:basket]
    erb :page
  end

  post('/basket') do
    session[:basket] += [params[:item].to_s]
    redirect to('/'), 303
  end

  post('/upload') do
    file = params[:file]
    "#{file[:filename]} #{file[:tempfile].read.sum}"
  end

  get('/download/:name') do
    send_file File.join(FOLDER, File.basename(params[:name])), filename: 'copy.bin', type: :bin
  end

  get('/stream') do
    stream do |out|
      3.times { |number| out << "line #{number}\n" }
    end
  end

  get('/cached') do
    etag 'one'
    cache_control :public, max_age: 60
    'cached'
  end

  get('/fields') { headers 'X-One' => '1', 'X-Two' => "2\n3" and 'fields' }
  get('/old') { redirect to('/?from=old') }
  get('/error') { raise 'an error' }
  get(%r{/caf(é|%C3%A9)}) { 'café' }
  error { status 500 and 'it failed' }
  not_found { 'nowhere' }
end

run Shop
