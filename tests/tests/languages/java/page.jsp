<%@ page contentType="text/html;charset=utf-8" session="false" %><!DOCTYPE html>
<title>${param.name}</title>
<% for (int i = 0; i < 2000; i++) { %><p>Line <%= i %> of <%= request.getQueryString() %></p>
<% } out.flush(); %>the end
