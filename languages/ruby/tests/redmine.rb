# frozen_string_literal: true

# Fills an empty Redmine for tests/tests/languages/ruby.rs: rails runner redmine.rb
Setting.host_name = 'redmine.test'
Setting.rest_api_enabled = '1'
Setting.attachment_max_size = '10240'

admin = User.find_by!(login: 'admin')
admin.password = admin.password_confirmation = 'a password of 24 letters'
admin.must_change_passwd = false
admin.save!

project = Project.new(name: 'Trials', is_public: true, description: "h2. Trials\n\n* *one*\n* two")
project.identifier = 'trials'
project.enabled_module_names = %w[issue_tracking wiki files news documents]
project.trackers = Tracker.all
project.save!

files = { 'large.bin' => 3_000_000, 'page.bin' => 60_000, 'small.txt' => 10 }.map do |name, size|
  content = StringIO.new((0..255).map(&:chr).join.b * (size / 256 + 1)).tap { |io| io.truncate(size) }
  content.define_singleton_method(:original_filename) { name }
  content.define_singleton_method(:content_type) { 'application/octet-stream' }
  Attachment.create!(file: content, author: admin, filename: name)
end

5.times do |number|
  issue = Issue.new(project: project, author: admin, tracker: project.trackers.first, subject: "Issue #{number}",
                    description: 'A text with @code@ and ünïcödé.', status: IssueStatus.first, priority: IssuePriority.first)
  issue.attachments = files if number.zero?
  issue.save!
end
wiki = project.wiki || Wiki.create!(project: project, start_page: 'Wiki')
page = WikiPage.new(wiki: wiki, title: 'Wiki')
page.content = WikiContent.new(page: page, author: admin, text: "h1. Wiki\n\n{{toc}}\n\nh2. Part\n\nText.")
page.save!
