# frozen_string_literal: true

Gem::Specification.new do |spec|
  spec.name = "acker_redis"
  spec.version = "0.1.0"
  spec.summary = "Track tuple trees across programs: Apache Storm's acker on Redis, a client for Ruby"
  spec.authors = ["The acker-redis authors"]
  spec.license = "Apache-2.0"
  spec.required_ruby_version = ">= 2.7"
  sync = File.expand_path("../sync_lua.py", __dir__)
  raise "python3 #{sync} failed" if File.exist?(sync) && !system("python3", sync, "ruby")

  %w[apply apply_blocks show status take].each do |name|
    file = File.expand_path("lua/#{name}.lua", __dir__)
    raise "#{file} is missing: run make clients in the folder of the project" unless File.exist?(file)
  end

  spec.files = Dir["lib/**/*.rb", "lua/*.lua", "README.md"]
  spec.add_dependency "redis", ">= 4.8", "< 6"
end
